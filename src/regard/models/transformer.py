"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), which outputs one token after another.

Shapes: N target tokens, M source tokens, D width, V vocabulary, B sentences, H heads, G = B * H, S slots, R rows in search.
"""

from __future__ import annotations

from torch import Tensor

from regard.data.ragged import Ragged
from regard.models.base import StaticSeq2Seq
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.states import StaticState, StepState, TransformerState, start_decoder


class Transformer(EncoderDecoder, StaticSeq2Seq[TransformerState, StaticState]):
    """The paper's model."""

    def hidden(self, target: Ragged, memory: Ragged) -> Tensor:
        layout = target.layout
        x_ND = self._embed(
            target.values, self.target_embedding, self.target_positions, layout.positions, layout.longest
        )
        return self._through_decoder(x_ND, layout, memory, causal=True)

    def start(self, memory: Ragged, *, beams: int) -> TransformerState:
        config = self.config
        return start_decoder(self.decoder, memory, num_heads=config.num_heads, window=config.window, beams=beams)

    def step(self, tokens: Tensor, state: StepState) -> Tensor:
        position = state.position()
        x_RD = self._embed(tokens, self.target_embedding, self.target_positions, position, state.num_positions)
        rotation, own_bias = self._rotation(position), state.own_bias()
        for layer, layer_state in zip(self.decoder, state.layers, strict=True):
            x_RD = layer.step(x_RD, layer_state, own_bias, state.memory_bias, rotation)
        state.advance()
        return self.project(self.decoder_norm(x_RD))

    @property
    def has_static_state(self) -> bool:
        # A static state does not keep the recent inputs of convolutions.
        return self.config.feed_forward != "conv"

    def static_state(
        self, like: TransformerState | StaticState, *, sentences: int, slots: int, steps: int
    ) -> StaticState:
        return StaticState(like, sentences=sentences, slots=slots, steps=steps, window=self.config.window)

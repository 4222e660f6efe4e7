"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), token by token.

Shapes: N target tokens, M source tokens, D width, V vocabulary, B sentences, R rows in search.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.data.ragged import Layout, Ragged
from regard.models.base import Seq2Seq
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.static_state import StaticState
from regard.nn.cache import Ancestry, KeyValueCache, fill_up, fill_up_slots, of_sentences
from regard.nn.layers import LayerState


class TransformerState:
    """What the decoder remembers of the rows being written."""

    def __init__(
        self, layers: list[LayerState], source: Layout, *, num_heads: int, beams: int, last: int | None
    ) -> None:
        self.layers = layers
        self.num_sentences, self.num_heads = len(source.lengths), num_heads
        self.wide, self.beams = beams, 1  # those that there will be, and that there are
        self.length = 0  # tokens read so far
        dtype = layers[0].keys.dtype if layers else torch.float32
        self.ancestry = Ancestry(source.device, dtype=dtype, last=last)
        holes_BS = ~source.mask  # the source's keys that are no tokens
        bias_BS = torch.zeros(holes_BS.shape, dtype=dtype, device=source.device).masked_fill_(holes_BS, float("-inf"))
        self.memory_bias = fill_up(bias_BS).repeat_interleave(num_heads, dim=0)[:, None]  # [B * H, 1, S]

    @property
    def places(self) -> int:
        """Positions that the next token's is among."""
        return self.length + 1

    def position(self) -> Tensor:
        """Of the next token, the same in all rows: [1]."""
        return torch.full((1,), self.length, device=self.memory_bias.device)

    def own_bias(self) -> Tensor:
        """Who may look at what of the past, the next token's own slot among it: [B * H, Q, S]."""
        return self.ancestry.grow(self.num_heads)

    def advance(self) -> None:
        """A token has been read."""
        self.length += 1

    def expand_beams(self) -> None:
        self.beams = self.wide
        self.ancestry.expand_beams(self.num_sentences, self.beams)
        for layer in self.layers:
            layer.recent = [recent.repeat_interleave(self.beams, dim=0) for recent in layer.recent]

    def reorder(self, rows: Tensor) -> None:
        self.ancestry.reorder(rows)
        for layer in self.layers:
            layer.recent = [recent.index_select(0, rows) for recent in layer.recent]
        if rows.numel() < self.num_sentences * self.beams:
            self._keep(rows.view(-1, self.beams)[:, 0] // self.beams)

    def _keep(self, sentences: Tensor) -> None:
        before, self.num_sentences = self.num_sentences, sentences.numel()
        for layer in self.layers:
            layer.own.keep(sentences)
            layer.keys = of_sentences(layer.keys, sentences, before)
            layer.values = of_sentences(layer.values, sentences, before)
        self.memory_bias = of_sentences(self.memory_bias, sentences, before)


class Transformer(EncoderDecoder, Seq2Seq):
    """The paper's model."""

    def hidden(self, target: Ragged, memory: Ragged) -> Tensor:
        layout = target.layout
        x_ND = self._embed(
            target.values, self.target_embedding, self.target_positions, layout.positions, layout.longest
        )
        return self._through_decoder(x_ND, layout, memory, causal=True)

    def start(self, memory: Ragged, *, beams: int) -> TransformerState:
        layers = []
        last = None if self.config.window is None else self.config.window + 1
        for layer in self.decoder:
            k_MHK, v_MHV = layer.cross_attention.keys_values(memory.values)
            k_GSK = fill_up_slots(memory.layout.pad(k_MHK).transpose(1, 2).flatten(0, 1))
            v_GSV = fill_up_slots(memory.layout.pad(v_MHV).transpose(1, 2).flatten(0, 1))
            num_sentences = len(memory.layout.lengths)
            recent = layer.feed_forward.start(num_sentences)
            layers.append(LayerState(KeyValueCache(num_sentences, beams=beams, last=last), k_GSK, v_GSV, recent))
        return TransformerState(layers, memory.layout, num_heads=self.config.num_heads, beams=beams, last=last)

    def step(self, tokens: Tensor, state: TransformerState | StaticState) -> Tensor:
        position = state.position()
        x_RD = self._embed(tokens, self.target_embedding, self.target_positions, position, state.places)
        rotation, own_bias = self._rotation(position), state.own_bias()
        for layer, layer_state in zip(self.decoder, state.layers, strict=True):
            x_RD = layer.step(x_RD, layer_state, own_bias, state.memory_bias, rotation)
        state.advance()
        return self.project(self.decoder_norm(x_RD))

    @property
    def has_static_state(self) -> bool:
        return self.config.feed_forward != "conv"  # a convolution's recent inputs would have to move along

    def static_state(self, like: TransformerState, *, sentences: int, slots: int, steps: int) -> StaticState:
        return StaticState(like, sentences=sentences, slots=slots, steps=steps, window=self.config.window)

"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017, section 3) and common variations.

Shapes: N target tokens, D width, R rows in search.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.config.transformer import PRESETS, TransformerConfig
from regard.data.ragged import Layout, Ragged
from regard.errors import ConfigError
from regard.models.base import StaticSeq2Seq
from regard.models.copying import CopyingSeq2Seq, SourceMemory
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.states import StaticState, StepState, TransformerState, start_decoder
from regard.nn.decoder_pool import DecoderPool, DecoderShape
from regard.text.tokenizer import BOS

__all__ = ["PRESETS", "Transformer"]


def without_last(source: Ragged) -> Ragged:
    """Return each sequence without its last token. One that has no other token stays as it is."""
    lengths = source.layout.lengths
    kept = torch.cat([torch.arange(length) < max(length - 1, 1) for length in lengths])
    layout = Layout([max(length - 1, 1) for length in lengths], source.layout.device)
    return Ragged(source.values[kept.to(source.values.device)], layout)


class Transformer(EncoderDecoder, CopyingSeq2Seq, StaticSeq2Seq[TransformerState, StaticState]):
    """The paper's model. With `copy` it is a pointer-generator."""

    def __init__(
        self, config: TransformerConfig | None = None, *, source_size: int, target_size: int, **options: Any
    ) -> None:
        super().__init__(config, source_size=source_size, target_size=target_size, **options)
        self.reads_source_eos = self.config.source_eos
        if self.config.start_id >= target_size:
            raise ConfigError(f"model.start_id is {self.config.start_id}, but there are {target_size} ids, from 0 on")
        if self.config.copy:
            self.start_copying(self.width, self.width, source_size=source_size, target_size=target_size)

    def encode(self, source: Ragged) -> Ragged:
        if not self.config.source_eos:
            source = without_last(source)
        if self.copying is None:
            return super().encode(source)
        memory = super().encode(Ragged(self.known(source.values), source.layout))
        return SourceMemory(memory.values, memory.layout, source.values)

    def hidden(self, target: Ragged, memory: Ragged) -> Tensor:
        layout = target.layout
        x_ND = self._embed(
            self._read(target.values), self.target_embedding, self.target_positions, layout.positions, layout.longest
        )
        return self._through_decoder(x_ND, layout, memory, causal=True)

    def _read(self, ids: Tensor) -> Tensor:
        """Return the ids whose embeddings the decoder reads."""
        ids, start = self.known(ids), self.config.start_id
        return ids if start == BOS else ids.masked_fill(ids == BOS, start)

    def start(self, memory: Ragged, *, beams: int) -> TransformerState:
        config = self.config
        state = start_decoder(self.decoder, memory, num_heads=config.num_heads, window=config.window, beams=beams)
        state.copied = self.start_copy(memory)
        return state

    def step(self, tokens: Tensor, state: StepState) -> Tensor:
        position, tokens = state.position(), self._read(tokens)
        x_RD = self._embed(tokens, self.target_embedding, self.target_positions, position, state.num_positions)
        rotation, own_bias = self._rotation(position), state.own_bias()
        for layer, layer_state in zip(self.decoder, state.layers, strict=True):
            x_RD = layer.step(x_RD, layer_state, own_bias, state.memory_bias, rotation)
        state.advance()
        return self.step_scores(self.decoder_norm(x_RD), state.copied)

    def decoder_shape(self) -> DecoderShape:
        heads, weight = self.config.heads, self.target_embedding
        return DecoderShape(
            len(self.decoder),
            heads.num_heads,
            heads.key_width,
            heads.value_width,
            self.config.window,
            weight.dtype,
            weight.device,
        )

    def write_memory(self, memory_MD: Tensor, pool: DecoderPool) -> None:
        for number, layer in enumerate(self.decoder):
            layer.cross_attention.write_keys_values(memory_MD, pool.memory[: memory_MD.size(0), number])

    def step_in_pool(self, tokens: Tensor, pool: DecoderPool, *, num_positions: int) -> Tensor:
        position, tokens = pool.position(), self._read(tokens)
        x_RD = self._embed(tokens, self.target_embedding, self.target_positions, position, num_positions)
        rotation = self._rotation(position)
        for number, layer in enumerate(self.decoder):
            x_RD = layer.step_in_pool(x_RD, pool, number, rotation)
        return self.project(self.decoder_norm(x_RD))

    @property
    def has_static_state(self) -> bool:
        # A static state keeps neither the recent inputs of convolutions nor sources to copy from.
        return self.config.feed_forward != "conv" and not self.config.copy

    @property
    def searches_in_bfloat16(self) -> bool:
        return self.has_static_state

    def static_state(
        self, like: TransformerState | StaticState, *, sentences: int, slots: int, steps: int
    ) -> StaticState:
        return StaticState(like, sentences=sentences, slots=slots, steps=steps, window=self.config.window)

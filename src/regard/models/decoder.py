"""The Transformer's decoder alone: a language model (Liu et al. 2018; Radford et al. 2018).

A layer is one of the paper's decoder without its attention to an encoder, which leaves causal self-attention and the
feed-forward layer. The model keeps the contract of a `TextSeq2Seq`, so that search, beams and prefixes work: of a source it
takes nothing but the number of texts.

Shapes: N tokens, D width, V vocabulary, B texts, R rows in search.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.ragged import Layout, Ragged
from regard.models.base import TextSeq2Seq, make_config
from regard.models.encoder_decoder import EncoderConfig, layer_options, make_final_norm, make_positions
from regard.nn.attend import AttentionMask
from regard.nn.cache import Ancestry, KeyValueCache
from regard.nn.device import stream_dtype
from regard.nn.dropout import Dropout
from regard.nn.layers import Stack, TransformerEncoderLayer
from regard.nn.linear import logits_of
from regard.nn.positions import Rotation


class DecoderConfig(EncoderConfig, frozen=True):
    """The layers of a language model. Embedding and output layer share one matrix."""

    def check(self) -> None:
        super().check()
        if self.feed_forward == "conv":
            raise ValueError("feed_forward is 'conv', which would see the next token; set relu, gelu or swiglu")


class DecoderLayer(TransformerEncoderLayer):
    """Causal self-attention and feed-forward; `forward` is that of an encoder layer with a causal mask."""

    def step(self, x_RD: Tensor, cache: KeyValueCache, bias: Tensor, rotation: Rotation | None) -> Tensor:
        """Return what `forward` returns, for one token per row."""
        x_RD = self.around_attention(x_RD, lambda x: (self.attention.step(x, cache, bias, rotation), x))
        return self.around_feed_forward(x_RD, lambda x: (self.feed_forward.step(x, []), x))


class DecoderOnlyState:
    """What the decoder keeps of the rows that search extends."""

    def __init__(self, caches: list[KeyValueCache], ancestry: Ancestry, num_texts: int, beams: int) -> None:
        self.caches, self.ancestry, self.num_texts = caches, ancestry, num_texts
        self.max_beams, self.beams = beams, 1  # after `expand_beams`, and now
        self.length = 0  # tokens read so far

    def expand_beams(self) -> None:
        self.beams = self.max_beams
        self.ancestry.expand_beams(self.num_texts, self.beams)

    def reorder(self, rows: Tensor) -> None:
        self.ancestry.reorder(rows)
        if rows.numel() < self.num_texts * self.beams:
            texts = rows.view(-1, self.beams)[:, 0] // self.beams
            self.num_texts = texts.numel()
            for cache in self.caches:
                cache.keep(texts)


class Decoder(TextSeq2Seq):
    """A language model over `source_size` ids."""

    def __init__(self, config: DecoderConfig | None = None, *, source_size: int, **options: Any) -> None:
        config = make_config(DecoderConfig, config, options)
        super().__init__()
        self.config, self.width = config, config.width
        self.max_length = config.max_positions if config.positions == "learned" else None
        D = config.width
        self.embedding = nn.Parameter(torch.empty(source_size, D).normal_(std=D**-0.5))
        self.positions = make_positions(config)
        self.dropout = Dropout(config.dropout, self.noise)
        options = {**layer_options(config), "noise": self.noise}
        self.decoder: Stack[DecoderLayer] = Stack(DecoderLayer(**options) for _ in range(config.num_layers))
        self.norm = make_final_norm(config)

    def encode(self, source: Ragged) -> Layout:
        return source.layout

    def hidden(self, target: Ragged, memory: Layout) -> Tensor:
        layout = target.layout
        x_ND = self._embed(target.values, layout.positions, layout.longest)
        mask = AttentionMask(layout, causal=True, window=self.config.window)
        for layer in self.decoder:
            x_ND = layer(x_ND, mask)
        hidden_ND: Tensor = self.norm(x_ND)
        return hidden_ND

    def _embed(self, ids: Tensor, positions: Tensor, longest: int) -> Tensor:
        x_ND = self.positions.add(F.embedding(ids, self.embedding) * math.sqrt(self.width), positions, longest)
        return self.dropout(x_ND.to(stream_dtype(x_ND)))

    @property
    def static_shapes(self) -> bool:
        return self.config.static_shapes

    # The output layer

    @property
    def output_weight(self) -> Tensor:
        return self.embedding

    def project(self, hidden: Tensor) -> Tensor:
        return logits_of(hidden, self.embedding)

    # One token at a time

    def start(self, memory: Layout, *, beams: int) -> DecoderOnlyState:
        B = memory.num_sentences
        last = None if self.config.window is None else self.config.window + 1
        caches = [KeyValueCache(B, beams=beams, last=last) for _ in self.decoder]
        dtype = stream_dtype(self.embedding)
        return DecoderOnlyState(caches, Ancestry(memory.device, dtype=dtype, last=last), B, beams)

    def step(self, tokens: Tensor, state: DecoderOnlyState) -> Tensor:
        position = torch.full((1,), state.length, device=tokens.device)
        x_RD = self._embed(tokens, position, state.length + 1)
        rotary = self.config.positions == "rotary"
        rotation = Rotation(position, self.config.heads.key_width) if rotary else None
        bias = state.ancestry.grow(self.config.num_heads)
        for layer, cache in zip(self.decoder, state.caches, strict=True):
            x_RD = layer.step(x_RD, cache, bias, rotation)
        state.length += 1
        return self.project(self.norm(x_RD))

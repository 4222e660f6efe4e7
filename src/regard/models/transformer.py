"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), token by token.

Shapes: N target tokens, M source tokens, D width, V vocabulary, B sentences, R rows in search.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard import kernels
from regard.data.ragged import Layout, Ragged
from regard.models.base import Seq2Seq
from regard.models.stacks import LayerState, Stacks
from regard.nn.cache import Ancestry, KeyValueCache, fill_up, fill_up_slots, of_sentences


class TransformerState:
    """What the decoder remembers of the rows being written."""

    def __init__(
        self, layers: list[LayerState], source: Layout, *, num_heads: int, beams: int, last: int | None
    ) -> None:
        self.layers = layers
        self.beams = beams
        self.length = 0  # tokens read so far
        dtype = layers[0].keys.dtype if layers else torch.float32
        self.ancestry = Ancestry(len(source.lengths), beams, source.device, dtype=dtype, last=last)
        holes_BS = ~source.mask  # the source's keys that are no tokens
        bias_BS = torch.zeros(holes_BS.shape, dtype=dtype, device=source.device).masked_fill_(holes_BS, float("-inf"))
        self.memory_bias = fill_up(bias_BS).repeat_interleave(num_heads, dim=0)[:, None]  # [B * H, 1, S]
        self._sentences = torch.arange(len(source.lengths), device=source.device)

    def reorder(self, rows: Tensor) -> None:
        self.ancestry.reorder(rows)
        for layer in self.layers:
            layer.recent = [recent.index_select(0, rows) for recent in layer.recent]
        sentences = rows.view(-1, self.beams)[:, 0] // self.beams
        if sentences.numel() != self._sentences.numel() or not torch.equal(sentences, self._sentences):
            self._keep(sentences)

    def _keep(self, sentences: Tensor) -> None:
        before = self._sentences.numel()
        for layer in self.layers:
            layer.own.keep(sentences)
            layer.keys = of_sentences(layer.keys, sentences, before)
            layer.values = of_sentences(layer.values, sentences, before)
        self.memory_bias = of_sentences(self.memory_bias, sentences, before)
        self._sentences = torch.arange(sentences.numel(), device=sentences.device)


class Transformer(Stacks, Seq2Seq):
    """The paper's model."""

    def hidden(self, target: Ragged, memory: Ragged) -> Tensor:
        layout = target.layout
        x_ND = self._embed(
            target.values, self.target_embedding, self.target_positions, layout.positions, layout.longest
        )
        return self._through_decoder(x_ND, layout, memory, causal=True)

    @property
    def fixed_shapes(self) -> bool:
        heads = self.config.heads
        tiles = max(heads.key_width, heads.value_width) <= kernels.WIDEST_HEAD
        return self.config.attention in ("auto", "tiled") and tiles

    def start(self, memory: Ragged, *, beams: int) -> TransformerState:
        layers = []
        last = None if self.config.window is None else (self.config.window + 1) * beams
        for layer in self.decoder:
            k_MHK, v_MHV = layer.cross_attention.keys_values(memory.values)
            k_GSK = fill_up_slots(memory.layout.pad(k_MHK).transpose(1, 2).flatten(0, 1))
            v_GSV = fill_up_slots(memory.layout.pad(v_MHV).transpose(1, 2).flatten(0, 1))
            num_sentences = len(memory.layout.lengths)
            recent = layer.feed_forward.start(num_sentences * beams)
            layers.append(LayerState(KeyValueCache(num_sentences, last=last), k_GSK, v_GSV, recent))
        return TransformerState(layers, memory.layout, num_heads=self.config.num_heads, beams=beams, last=last)

    def step(self, tokens: Tensor, state: TransformerState) -> Tensor:
        position = torch.full((1,), state.length, device=tokens.device)  # all rows write the same one
        x_RD = self._embed(tokens, self.target_embedding, self.target_positions, position, state.length + 1)
        rotation = self._rotation(position)
        own_bias = state.ancestry.grow(self.config.num_heads)
        for layer, layer_state in zip(self.decoder, state.layers, strict=True):
            x_RD = layer.step(x_RD, layer_state, own_bias, state.memory_bias, rotation)
        state.length += 1
        return self.project(self.decoder_norm(x_RD))

"""What a Transformer's decoder remembers, in tensors that never change their shape: so that a step can be recorded.

There is room for so many sentences, source tokens and steps; what is not there is masked. Nothing in a step depends on a
number that the host knows.

Shapes: B sentences, Q beams, R = B * Q rows, H heads, G = B * H, K head width, S slots of the past, one a step and beam.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.nn.cache import StaticCache, of_sentences
from regard.nn.layers import LayerState

if TYPE_CHECKING:
    from regard.models.transformer import TransformerState

NOTHING = float("-inf")


class StaticState:
    """Room for `sentences` of at most `slots` source tokens, and for `steps` tokens of each of their beams.

    With a window all of the past stays where it is, and what lies farther back is masked.
    """

    def __init__(self, like: TransformerState, *, sentences: int, slots: int, steps: int, window: int | None) -> None:
        bias, Q = like.memory_bias, like.wide
        self.num_sentences, self.num_heads, self.places = sentences, like.num_heads, steps
        self.wide = self.beams = Q  # all of them from the first step on
        device, dtype, G = bias.device, bias.dtype, sentences * like.num_heads
        self._position = torch.zeros(1, dtype=torch.int64, device=device)
        self._place = torch.arange(Q, device=device)  # the slots of the next tokens
        self._own = torch.full((Q, Q), NOTHING, dtype=dtype, device=device).fill_diagonal_(0.0)
        self._window, self._steps = window, torch.arange(steps, device=device).repeat_interleave(Q)  # of each slot
        self._past = torch.full((sentences, Q, steps * Q), NOTHING, dtype=dtype, device=device)
        self.memory_bias = torch.zeros(
            (G, 1, slots), dtype=dtype, device=device
        )  # not yet: a softmax of nothing is NaN
        self.layers: list[LayerState] = []
        self._caches: list[StaticCache] = []
        for layer in like.layers:
            (_, _, K), V = layer.keys.shape, layer.values.size(-1)
            own = StaticCache(bias.new_zeros(G, steps * Q, K), bias.new_zeros(G, steps * Q, V), self._place, sentences)
            keys, values = bias.new_zeros(G, slots, K), bias.new_zeros(G, slots, V)
            self.layers.append(LayerState(own, keys, values, []))
            self._caches.append(own)

    # What a step asks

    def position(self) -> Tensor:
        return self._position

    def own_bias(self) -> Tensor:
        """Who may look at what of the past, the next token's own slot among it: [B * H, Q, S]."""
        own = self._own.expand(self.num_sentences, -1, -1)
        bias = self._past.index_copy_(2, self._place, own)
        if self._window is not None:
            bias = bias.masked_fill(self._steps < self._position - self._window, NOTHING)
        return bias.repeat_interleave(self.num_heads, dim=0)

    def advance(self) -> None:
        self._position += 1
        self._place += self.beams

    # What search asks

    def load(self, state: TransformerState) -> None:
        """Begins with what a fresh state knows of its source. Sentences that are not there look like the first one."""
        self._position.zero_()
        self._place.copy_(torch.arange(self.beams, device=self._place.device))
        self._past.fill_(NOTHING)
        slots, there = state.memory_bias.size(-1), state.num_sentences
        sentences = torch.arange(self.num_sentences, device=self._place.device)
        sentences = sentences.masked_fill(sentences >= there, 0)
        self.memory_bias.fill_(NOTHING)[:, :, :slots] = of_sentences(state.memory_bias, sentences, there)
        for own, layer in zip(self.layers, state.layers, strict=True):
            own.keys.zero_()[:, :slots] = of_sentences(layer.keys, sentences, there)
            own.values.zero_()[:, :slots] = of_sentences(layer.values, sentences, there)

    def take_over(self, other: StaticState, steps: int) -> None:
        """Goes on from a state with less room, after so many steps."""
        used = steps * self.beams
        self._position.copy_(other._position)
        self._place.copy_(other._place)
        self._past.fill_(NOTHING)[:, :, :used] = other._past[:, :, :used]
        self.memory_bias.copy_(other.memory_bias)
        for cache, before in zip(self._caches, other._caches, strict=True):
            cache.keys[:, :used] = before.keys[:, :used]
            cache.values[:, :used] = before.values[:, :used]
        for layer, old in zip(self.layers, other.layers, strict=True):
            layer.keys.copy_(old.keys)
            layer.values.copy_(old.values)

    def reorder(self, rows: Tensor, *, dropped: bool) -> None:
        """As of any state, but for all rows; `dropped` says whether sentences take the places of others."""
        past = self._past.flatten(0, 1).index_select(0, rows)
        self._past.copy_(past.unflatten(0, (-1, self.beams)))
        if not dropped:
            return
        sentences, B = rows.view(-1, self.beams)[:, 0] // self.beams, self.num_sentences
        self.memory_bias.copy_(of_sentences(self.memory_bias, sentences, B))
        for layer in self.layers:
            layer.own.keep(sentences)
            layer.keys.copy_(of_sentences(layer.keys, sentences, B))
            layer.values.copy_(of_sentences(layer.values, sentences, B))

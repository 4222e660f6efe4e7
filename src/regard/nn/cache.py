"""What a stack of attention layers remembers while a sentence is written.

The keys and values of all beams of a sentence lie in one row, in the order they were written, and are never moved: a beam
that continues another one inherits *who may look at what*, a few bits, instead of copies of its parent's keys and values.

Shapes: B sentences, Q beams, R = B * Q rows, H heads, K head width, S slots written so far (Q a step).
"""

from __future__ import annotations

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of one layer: [B, H, slots, K], in a buffer that doubles when it is full."""

    def __init__(self, num_sentences: int, *, last: int | None = None) -> None:
        self.num_sentences = num_sentences
        self.last = last  # how many slots, counted from the newest, are looked at; None: all
        self.used = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(self, k_RHK: Tensor, v_RHV: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values to look at, those of one more token a row among them."""
        k = k_RHK.view(self.num_sentences, -1, *k_RHK.shape[1:]).transpose(1, 2)
        v = v_RHV.view(self.num_sentences, -1, *v_RHV.shape[1:]).transpose(1, 2)
        end = self.used + k.size(2)
        self._keys = _write(self._keys, k, self.used)
        self._values = _write(self._values, v, self.used)
        self.used = end
        begin = 0 if self.last is None else max(0, end - self.last)
        return self._keys[:, :, begin:end], self._values[:, :, begin:end]

    def keep(self, sentences: Tensor) -> None:
        """Keeps the rows of these sentences, in this order."""
        assert self._keys is not None and self._values is not None, "nothing was written yet"
        self.num_sentences = sentences.numel()
        self._keys = self._keys.index_select(0, sentences)
        self._values = self._values.index_select(0, sentences)


def _write(buffer: Tensor | None, entries: Tensor, start: int) -> Tensor:
    """The buffer with the entries at `start`; a new one, twice the size, where they do not fit."""
    end = start + entries.size(2)
    if buffer is None or end > buffer.size(2):
        B, H, _, K = entries.shape
        larger = entries.new_empty(B, H, max(16 * entries.size(2), 2 * end), K)
        if buffer is not None:
            larger[:, :, :start] = buffer[:, :, :start]
        buffer = larger
    buffer[:, :, start:end] = entries
    return buffer


class Ancestry:
    """For each beam, which slots hold its own past: zero to look, minus infinity not to, [B, Q, S]."""

    def __init__(self, num_sentences: int, beams: int, device: torch.device, *, last: int | None = None) -> None:
        self.beams = beams
        self.last = last  # as the caches'
        self._own = torch.full((beams, beams), float("-inf"), device=device).fill_diagonal_(0.0)
        self.bias = self._own.new_empty(num_sentences, beams, 0)

    def grow(self, num_heads: int) -> Tensor:
        """The bias with each beam's own new slot, for every head: [B * H, Q, S]; a plain zero for a single beam."""
        if self.beams == 1:
            return self._own[None]
        self.bias = torch.cat([self.bias, self._own.expand(self.bias.size(0), -1, -1)], dim=-1)
        if self.last is not None:
            self.bias = self.bias[:, :, -self.last :]
        return self.bias.repeat_interleave(num_heads, dim=0)

    def reorder(self, rows: Tensor) -> None:
        """Lets each row go on from the row it names."""
        if self.beams > 1:
            self.bias = self.bias.flatten(0, 1).index_select(0, rows).unflatten(0, (-1, self.beams))

"""What a stack of attention layers remembers while a sentence is written.

The keys and values of all beams of a sentence lie in one row, in the order they were written, and are never moved: a beam
that continues another one inherits *who may look at what*, a few bits, instead of copies of its parent's keys and values.

Heads of sentences lie one behind the other, so that a step's few products need no view of their own.

Shapes: B sentences, Q beams, R = B * Q rows, H heads, G = B * H, K head width, S slots written so far (Q a step).
"""

from __future__ import annotations

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of one layer, in buffers that double when they are full."""

    def __init__(self, num_sentences: int, *, last: int | None = None) -> None:
        self.num_sentences = num_sentences
        self.last = last  # how many slots, counted from the newest, are looked at; None: all
        self.used = 0
        self._keys: Tensor | None = None  # [G, slots, K]
        self._values: Tensor | None = None  # [G, slots, V]

    def append(self, k_RHK: Tensor, v_RHV: Tensor) -> tuple[Tensor, Tensor]:
        """The keys [G, S, K] and values [G, S, V] to look at, those of one more token a row among them."""
        k_GQK, v_GQV = by_head(k_RHK, self.num_sentences), by_head(v_RHV, self.num_sentences)
        end = self.used + k_GQK.size(1)
        self._keys = _write(self._keys, k_GQK, self.used)
        self._values = _write(self._values, v_GQV, self.used)
        self.used = end
        begin = 0 if self.last is None else max(0, end - self.last)
        return self._keys[:, begin:end], self._values[:, begin:end]

    def keep(self, sentences: Tensor) -> None:
        """Keeps the rows of these sentences, in this order."""
        assert self._keys is not None and self._values is not None, "nothing was written yet"
        self._keys = of_sentences(self._keys, sentences, self.num_sentences)
        self._values = of_sentences(self._values, sentences, self.num_sentences)
        self.num_sentences = sentences.numel()


def by_head(x_RHK: Tensor, num_sentences: int) -> Tensor:
    """A token a row, as each head of each sentence has them: [G, Q, K]."""
    R, H, K = x_RHK.shape
    if num_sentences == R:
        return x_RHK.reshape(R * H, 1, K)
    return x_RHK.view(num_sentences, -1, H, K).transpose(1, 2).reshape(num_sentences * H, -1, K)


def by_row(x_GQK: Tensor, num_sentences: int) -> Tensor:
    """`by_head` undone, heads joined: [R, H * K]."""
    Q, K = x_GQK.shape[1:]
    if Q == 1:
        return x_GQK.view(num_sentences, -1)
    return x_GQK.view(num_sentences, -1, Q, K).transpose(1, 2).reshape(num_sentences * Q, -1)


def of_sentences(x_G: Tensor, sentences: Tensor, num_sentences: int) -> Tensor:
    """The heads of these of all sentences, in this order."""
    return x_G.unflatten(0, (num_sentences, -1)).index_select(0, sentences).flatten(0, 1)


def _write(buffer: Tensor | None, entries_GQK: Tensor, start: int) -> Tensor:
    """The buffer with the entries at `start`; a new one, twice the size, where they do not fit."""
    G, Q, K = entries_GQK.shape
    if buffer is None or start + Q > buffer.size(1):
        larger = entries_GQK.new_empty(G, max(16 * Q, 2 * (start + Q)), K)
        if buffer is not None:
            larger[:, :start] = buffer[:, :start]
        buffer = larger
    buffer.narrow(1, start, Q).copy_(entries_GQK)
    return buffer


class Ancestry:
    """For each beam, which slots hold its own past: zero to look, minus infinity not to, [B, Q, S]."""

    def __init__(
        self,
        num_sentences: int,
        beams: int,
        device: torch.device,
        *,
        dtype: torch.dtype = torch.float32,
        last: int | None = None,
    ) -> None:
        self.beams = beams
        self.last = last  # as the caches'
        self._own = torch.full((beams, beams), float("-inf"), dtype=dtype, device=device).fill_diagonal_(0.0)
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

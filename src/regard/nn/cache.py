"""Key and value caches of attention layers during search.

The keys and values of all beams of a sentence share one row of slots, in the order in which they were added, and are never
moved. A beam that continues another beam inherits the bias that says which slots it may attend to (`Ancestry`), instead of
copies of keys and values.

Tensors have one row per sentence and head, so that a step can use them in batched products without a copy.

Shapes: B sentences, Q beams, R = B * Q rows, H heads, G = B * H, K head width,
        S slots in use: one per step, and Q per step after the beams were expanded.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

FEWEST = 16  # slots attended to at least, empty ones masked: a softmax over fewer is slow on CPUs (LOG.md)
FIRST_STEPS = 32  # steps that a new buffer has room for


class Slots:
    """The keys or the values of one layer, in a buffer that doubles when it is full."""

    def __init__(self, room: int) -> None:
        self.room = room  # slots of the first buffer
        self.by_head: Tensor | None = None  # [G, slots, K]
        self._by_sentence: Tensor | None = None  # the same memory as [B, H, slots, K]

    def write(self, entries_RHK: Tensor, start: int, num_sentences: int) -> Tensor:
        """Write Q entries per sentence into the slots from `start` on. Return all slots: [G, slots, K]."""
        R, H, K = entries_RHK.shape
        Q = R // num_sentences
        if self.by_head is None or start + Q > self.by_head.size(1):
            larger = entries_RHK.new_empty(num_sentences * H, max(self.room, 2 * (start + Q)), K)
            if self.by_head is None:
                larger[:, :FEWEST] = 0.0
            else:
                larger[:, :start] = self.by_head[:, :start]
            self.by_head, self._by_sentence = larger, None
        if self._by_sentence is None:
            self._by_sentence = self.by_head.view(num_sentences, H, -1, K)
        entries_BHQK = entries_RHK.view(num_sentences, Q, H, K).transpose(1, 2)
        self._by_sentence.narrow(2, start, Q).copy_(entries_BHQK)
        return self.by_head

    def keep(self, sentences: Tensor, num_sentences: int, used: int) -> None:
        """Keep only these sentences, in this order. `used` is the number of slots written."""
        assert self.by_head is not None, "no slot has been written"
        before_BHSK = self.by_head.unflatten(0, (num_sentences, -1))
        used = max(used, FEWEST)
        kept = self.by_head.new_empty(sentences.numel(), *before_BHSK.shape[1:])
        kept[:, :, :used] = before_BHSK[:, :, :used].index_select(0, sentences)
        self.by_head, self._by_sentence = kept.flatten(0, 1), kept


class KeyValueCache:
    """The keys and values of one layer. With `last`, only those of the last steps are attended to."""

    def __init__(self, num_sentences: int, *, beams: int, last: int | None = None) -> None:
        self.num_sentences = num_sentences
        self.last = last
        self.used = 0
        self._keys, self._values = Slots(FIRST_STEPS * beams), Slots(FIRST_STEPS * beams)

    def append(self, k_RHK: Tensor, v_RHV: Tensor) -> tuple[Tensor, Tensor]:
        """Add one token per row. Return all keys [G, S, K] and values [G, S, V] to attend to."""
        keys = self._keys.write(k_RHK, self.used, self.num_sentences)
        values = self._values.write(v_RHV, self.used, self.num_sentences)
        num_beams = k_RHK.size(0) // self.num_sentences
        self.used += num_beams
        begin = 0 if self.last is None else max(0, self.used - self.last * num_beams)
        count = max(self.used, FEWEST) if begin == 0 else self.used - begin
        return keys.narrow(1, begin, count), values.narrow(1, begin, count)

    def keep(self, sentences: Tensor) -> None:
        """Keep only these sentences, in this order."""
        self._keys.keep(sentences, self.num_sentences, self.used)
        self._values.keep(sentences, self.num_sentences, self.used)
        self.num_sentences = sentences.numel()


class StaticCache:
    """The keys and values of one layer in tensors of fixed shape. `place` has the slots of the next token."""

    def __init__(self, keys: Tensor, values: Tensor, place: Tensor, num_sentences: int) -> None:
        self.keys, self.values, self.place, self.num_sentences = keys, values, place, num_sentences

    def append(self, k_RHK: Tensor, v_RHV: Tensor) -> tuple[Tensor, Tensor]:
        """Add one token per row. Return all keys [G, slots, K] and values [G, slots, V]."""
        self.keys.index_copy_(1, self.place, by_head(k_RHK, self.num_sentences))
        self.values.index_copy_(1, self.place, by_head(v_RHV, self.num_sentences))
        return self.keys, self.values

    def keep(self, sentences: Tensor) -> None:
        """Replace each sentence by the one that its entry of `sentences` names."""
        self.keys.copy_(of_sentences(self.keys, sentences, self.num_sentences))
        self.values.copy_(of_sentences(self.values, sentences, self.num_sentences))


def by_head(x_RHK: Tensor, num_sentences: int) -> Tensor:
    """Return one token per row, [R, H, K], grouped by sentence and head: [G, Q, K]."""
    R, H, K = x_RHK.shape
    if num_sentences == R:
        return x_RHK.reshape(R * H, 1, K)
    return x_RHK.view(num_sentences, -1, H, K).transpose(1, 2).reshape(num_sentences * H, -1, K)


def by_row(x_GQK: Tensor, num_sentences: int) -> Tensor:
    """Return the inverse of `by_head`, heads joined: [R, H * K]."""
    Q, K = x_GQK.shape[1:]
    if Q == 1:
        return x_GQK.view(num_sentences, -1)
    return x_GQK.view(num_sentences, -1, Q, K).transpose(1, 2).reshape(num_sentences * Q, -1)


def of_sentences(x_G: Tensor, sentences: Tensor, num_sentences: int) -> Tensor:
    """Return the rows of these sentences, in this order."""
    return x_G.unflatten(0, (num_sentences, -1)).index_select(0, sentences).flatten(0, 1)


def fill_up(bias: Tensor) -> Tensor:
    """Return a bias, [..., S], extended to `FEWEST` slots. The new ones are masked."""
    missing = FEWEST - bias.size(-1)
    return F.pad(bias, (0, missing), value=float("-inf")) if missing > 0 else bias


def fill_up_slots(x_GSK: Tensor) -> Tensor:
    """Return keys or values extended to `FEWEST` slots. The new ones are zero."""
    missing = FEWEST - x_GSK.size(1)
    return F.pad(x_GSK, (0, 0, 0, missing)) if missing > 0 else x_GSK


class Ancestry:
    """Which slots hold each beam's own past: a bias of zero for those, minus infinity for others, [B, Q, S]."""

    def __init__(self, device: torch.device, *, dtype: torch.dtype = torch.float32, last: int | None = None) -> None:
        self.beams = 1
        self.last = last  # as in KeyValueCache
        self._own = torch.zeros((1, 1), dtype=dtype, device=device)
        self.bias = self._own[None]  # used after beams were expanded
        self.length = 0  # steps taken
        # A single beam sees all slots written; in its first steps the empty slots up to FEWEST are masked.
        alone = torch.full((FEWEST, FEWEST), float("-inf"), dtype=dtype, device=device).triu_(diagonal=1)
        self._alone = list(alone.view(FEWEST, 1, 1, FEWEST).unbind())

    def expand_beams(self, num_sentences: int, beams: int) -> None:
        """Expand each sentence to `beams` beams, which all continue its single one."""
        assert self.length == 1, f"expand beams after the first step, not after {self.length}"
        self.beams = beams
        self.bias = self._own.new_zeros(num_sentences, beams, self.length)
        self._own = self._own.new_full((beams, beams), float("-inf")).fill_diagonal_(0.0)

    def grow(self, num_heads: int) -> Tensor:
        """Add a slot per beam. Return the bias for every head, [B * H, Q, S], or one for all rows if there is one beam."""
        self.length += 1
        if self.beams == 1:
            all_there = self.length >= FEWEST or (self.last is not None and self.length > self.last)
            return self._own[None] if all_there else self._alone[self.length - 1]
        self.bias = torch.cat([self.bias, self._own.expand(self.bias.size(0), -1, -1)], dim=-1)
        if self.last is not None and self.bias.size(-1) > self.last * self.beams:
            self.bias = self.bias[:, :, -self.last * self.beams :]
            return self.bias.repeat_interleave(num_heads, dim=0)
        return fill_up(self.bias).repeat_interleave(num_heads, dim=0)

    def reorder(self, rows: Tensor) -> None:
        """Make row i continue row rows[i]."""
        if self.beams > 1:
            self.bias = self.bias.flatten(0, 1).index_select(0, rows).unflatten(0, (-1, self.beams))

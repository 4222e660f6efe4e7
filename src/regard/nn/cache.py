"""What a stack of attention layers remembers while a sentence is written.

The keys and values of all beams of a sentence lie in one row, in the order they were written, and are never moved: a beam
that continues another one inherits *who may look at what*, a few bits, instead of copies of its parent's keys and values.

Heads of sentences lie one behind the other, so that a step's few products need no view of their own.

Shapes: B sentences, Q beams, R = B * Q rows, H heads, G = B * H, K head width,
        S slots written so far: one a step, Q since there are beams.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels import cpu

FEWEST = 16  # slots that are looked at, those without a key masked: a softmax over fewer is slow on CPUs (LOG.md)
FIRST_STEPS = 32  # that a buffer holds


class Slots:
    """Keys, or values, of one layer, in a buffer that doubles when it is full."""

    def __init__(self, room: int) -> None:
        self.room = room  # slots to begin with
        self.by_head: Tensor | None = None  # [G, slots, K]
        self._by_sentence: Tensor | None = None  # the same memory as [B, H, slots, K]

    def write(self, entries_RHK: Tensor, start: int, num_sentences: int) -> Tensor:
        """All slots, [G, slots, K], with these entries, Q a sentence, from `start` on."""
        R, H, K = entries_RHK.shape
        Q = R // num_sentences
        if self.by_head is None or start + Q > self.by_head.size(1):
            larger = entries_RHK.new_empty(num_sentences * H, max(self.room, 2 * (start + Q)), K)
            if self.by_head is None:
                larger[:, :FEWEST] = 0.0
            else:
                larger[:, :start] = self.by_head[:, :start]
            self.by_head, self._by_sentence = larger, None
        if cpu.usable(entries_RHK):
            cpu.write(entries_RHK, self.by_head, start)
            return self.by_head
        if self._by_sentence is None:
            self._by_sentence = self.by_head.view(num_sentences, H, -1, K)
        entries_BHQK = entries_RHK.view(num_sentences, Q, H, K).transpose(1, 2)
        self._by_sentence.narrow(2, start, Q).copy_(entries_BHQK)
        return self.by_head

    def keep(self, sentences: Tensor, num_sentences: int, used: int) -> None:
        """Keeps those of these of all sentences, in this order; so many slots are written."""
        assert self.by_head is not None, "nothing was written yet"
        before_BHSK = self.by_head.unflatten(0, (num_sentences, -1))
        used = max(used, FEWEST)
        kept = self.by_head.new_empty(sentences.numel(), *before_BHSK.shape[1:])
        kept[:, :, :used] = before_BHSK[:, :, :used].index_select(0, sentences)
        self.by_head, self._by_sentence = kept.flatten(0, 1), kept


class KeyValueCache:
    """Keys and values of one layer."""

    def __init__(self, num_sentences: int, *, beams: int, last: int | None = None) -> None:
        self.num_sentences = num_sentences
        self.last = last  # how many steps, counted from the newest, are looked at; None: all
        self.used = 0
        self._keys, self._values = Slots(FIRST_STEPS * beams), Slots(FIRST_STEPS * beams)

    def append(self, k_RHK: Tensor, v_RHV: Tensor) -> tuple[Tensor, Tensor]:
        """The keys [G, S, K] and values [G, S, V] to look at, those of one more token a row among them."""
        keys = self._keys.write(k_RHK, self.used, self.num_sentences)
        values = self._values.write(v_RHV, self.used, self.num_sentences)
        num_beams = k_RHK.size(0) // self.num_sentences
        self.used += num_beams
        begin = 0 if self.last is None else max(0, self.used - self.last * num_beams)
        count = max(self.used, FEWEST) if begin == 0 else self.used - begin
        return keys.narrow(1, begin, count), values.narrow(1, begin, count)

    def keep(self, sentences: Tensor) -> None:
        """Keeps the rows of these sentences, in this order."""
        self._keys.keep(sentences, self.num_sentences, self.used)
        self._values.keep(sentences, self.num_sentences, self.used)
        self.num_sentences = sentences.numel()


class StaticCache:
    """Keys and values of one layer in tensors that never change their shape; `place` says where the next ones go."""

    def __init__(self, keys: Tensor, values: Tensor, place: Tensor, num_sentences: int) -> None:
        self.keys, self.values, self.place, self.num_sentences = keys, values, place, num_sentences

    def append(self, k_RHK: Tensor, v_RHV: Tensor) -> tuple[Tensor, Tensor]:
        """All keys [G, slots, K] and values [G, slots, V], those of one more token a row among them."""
        self.keys.index_copy_(1, self.place, by_head(k_RHK, self.num_sentences))
        self.values.index_copy_(1, self.place, by_head(v_RHV, self.num_sentences))
        return self.keys, self.values

    def keep(self, sentences: Tensor) -> None:
        """Each sentence's place taken by the one it names."""
        self.keys.copy_(of_sentences(self.keys, sentences, self.num_sentences))
        self.values.copy_(of_sentences(self.values, sentences, self.num_sentences))


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


def fill_up(bias: Tensor) -> Tensor:
    """A bias, [..., S], with the fewest slots that are looked at, the new ones masked."""
    missing = FEWEST - bias.size(-1)
    return F.pad(bias, (0, missing), value=float("-inf")) if missing > 0 else bias


def fill_up_slots(x_GSK: Tensor) -> Tensor:
    """Keys or values with the fewest slots that are looked at, the new ones zero."""
    missing = FEWEST - x_GSK.size(1)
    return F.pad(x_GSK, (0, 0, 0, missing)) if missing > 0 else x_GSK


class Ancestry:
    """For each beam, which slots hold its own past: zero to look, minus infinity not to, [B, Q, S]."""

    def __init__(self, device: torch.device, *, dtype: torch.dtype = torch.float32, last: int | None = None) -> None:
        self.beams = 1
        self.last = last  # as the caches'
        self._own = torch.zeros((1, 1), dtype=dtype, device=device)
        self.bias = self._own[None]  # of several beams, once there are
        self.length = 0  # steps taken
        # A single beam sees all that is written, and in its first steps nothing of the slots behind it.
        alone = torch.full((FEWEST, FEWEST), float("-inf"), dtype=dtype, device=device).triu_(diagonal=1)
        self._alone = list(alone.view(FEWEST, 1, 1, FEWEST).unbind())

    def expand_beams(self, num_sentences: int, beams: int) -> None:
        """So many beams, which all have seen what the one has."""
        assert self.length == 1, f"beams begin after the first step, not after {self.length}"
        self.beams = beams
        self.bias = self._own.new_zeros(num_sentences, beams, self.length)
        self._own = self._own.new_full((beams, beams), float("-inf")).fill_diagonal_(0.0)

    def grow(self, num_heads: int) -> Tensor:
        """The bias with each beam's own new slot, for every head: [B * H, Q, S]; of a single beam, one for all."""
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
        """Lets each row go on from the row it names."""
        if self.beams > 1:
            self.bias = self.bias.flatten(0, 1).index_select(0, rows).unflatten(0, (-1, self.beams))

"""Ragged tensors: the values of sentences of different lengths in one flat tensor, and the layout of the sentences in it.

There is no pad token. Code that needs a rectangle (`nn.attend` on a CPU) uses `Layout.pad` and `Layout.unpad`.

Shapes: N tokens of a batch, B sentences, T tokens of the longest sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Layout:
    """Where each sentence of a batch begins and ends. What follows from the lengths is computed once, on demand."""

    def __init__(self, lengths: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.lengths = tuple(lengths)
        self.device = torch.device(device)

    @property
    def num_sentences(self) -> int:
        """The number of sentences, B."""
        return len(self.lengths)

    @cached_property
    def total(self) -> int:
        """The number of tokens, N."""
        return sum(self.lengths)

    @cached_property
    def longest(self) -> int:
        """The number of tokens of the longest sentence, T."""
        return max(self.lengths, default=0)

    @cached_property
    def even(self) -> bool:
        """Whether all sentences have the same length, so that the flat tensor is a rectangle already."""
        return self.total == self.longest * len(self.lengths)

    @cached_property
    def offsets(self) -> Tensor:
        """The index of the first token of each sentence, then N: int32, [B+1]."""
        return torch.tensor((0, *self.lengths), dtype=torch.int32).cumsum(0, dtype=torch.int32).to(self.device)

    @cached_property
    def _lengths_on_cpu(self) -> NDArray[np.int64]:
        return np.array(self.lengths, dtype=np.int64)

    @cached_property
    def sentences(self) -> Tensor:
        """The index of the sentence of each token: [N]."""
        return torch.from_numpy(np.arange(len(self.lengths)).repeat(self._lengths_on_cpu)).to(self.device)

    @cached_property
    def positions(self) -> Tensor:
        """The position of each token in its sentence, from 0: [N]."""
        starts = self._lengths_on_cpu.cumsum() - self._lengths_on_cpu
        return torch.from_numpy(np.arange(self.total) - starts.repeat(self._lengths_on_cpu)).to(self.device)

    @cached_property
    def slots(self) -> Tensor:
        """The index of each token in the flattened rectangle: [N]."""
        return self.sentences * self.longest + self.positions

    @cached_property
    def sources(self) -> Tensor:
        """The index of the token at each place of the flattened rectangle; 0 where there is none: [B*T]."""
        places = torch.zeros(self.num_sentences * self.longest, dtype=torch.int64, device=self.device)
        return places.index_copy_(0, self.slots, torch.arange(self.total, device=self.device))

    @cached_property
    def holes(self) -> Tensor:
        """The indices of the flattened rectangle that hold no token."""
        return torch.from_numpy(np.flatnonzero(~self._mask_on_cpu)).to(self.device)

    def clear_holes(self, flat: Tensor) -> Tensor:
        """Write zeros where a flattened rectangle, [B*T, ...], holds no token, and return it."""
        return flat.index_fill_(0, self.holes, 0.0)

    @cached_property
    def _mask_on_cpu(self) -> NDArray[np.bool_]:
        return np.arange(self.longest) < self._lengths_on_cpu[:, None]

    @cached_property
    def mask(self) -> Tensor:
        """True where the rectangle holds a token: [B, T]."""
        return torch.from_numpy(self._mask_on_cpu).to(self.device)

    @cached_property
    def _alone(self) -> dict[int, Tensor]:
        return {}

    def alone(self, by: int) -> Tensor:
        """Return True for each token whose sentence has no token `by` positions before it: [N]."""
        if by not in self._alone:
            alone = self.sentences.roll(by) != self.sentences
            # These were rolled in from the other end.
            alone[: max(by, 0)] = alone[max(self.total + min(by, 0), 0) :] = True
            self._alone[by] = alone
        return self._alone[by]

    def to(self, device: torch.device | str) -> Layout:
        """Return the layout with its tensors on a device."""
        return self if torch.device(device) == self.device else Layout(self.lengths, device)

    def pad(self, values: Tensor) -> Tensor:
        """Return [N, ...] as a rectangle, [B, T, ...]; a view if the layout is even.

        Places after the end of a sentence hold copies of the first token of the batch: finite values to be masked, through
        which no gradient flows.
        """
        if not self.even:
            learning = torch.is_grad_enabled()
            values = _Pad.apply(values, self) if learning else values.index_select(0, self.sources)  # type: ignore[no-untyped-call]
        return values.view(self.num_sentences, self.longest, *values.shape[1:])

    def unpad(self, padded: Tensor) -> Tensor:
        """Return a rectangle, [B, T, ...], without the places after the end of each sentence: [N, ...]."""
        flat = padded.flatten(0, 1)
        if self.even:
            return flat
        learning = torch.is_grad_enabled()
        return _Unpad.apply(flat, self) if learning else flat.index_select(0, self.slots)  # type: ignore[no-untyped-call]


class StaticLayout(Layout):
    """A layout whose tensors have the same shapes for every batch, so that a captured step can be replayed.

    The lengths are known on the device only. The last sentence is followed by one of dummy tokens, and that by empty ones.
    """

    def __init__(self, positions: Tensor, sentences: Tensor, offsets: Tensor, *, longest: int) -> None:
        self.device = positions.device
        self.positions, self.sentences, self.offsets = positions, sentences, offsets
        self.total, self.longest = positions.size(0), longest

    @property
    def lengths(self) -> tuple[int, ...]:  # type: ignore[override]
        raise AssertionError("the lengths of a static layout are not known on the host")

    @property
    def num_sentences(self) -> int:
        return self.offsets.size(0) - 1

    @property
    def even(self) -> bool:
        return False

    @cached_property
    def slots(self) -> Tensor:
        return self.sentences.long() * self.longest + self.positions

    @cached_property
    def mask(self) -> Tensor:
        """True where the rectangle holds a token: [B, T]. All dummy tokens have position 0."""
        filled = torch.zeros(self.num_sentences * self.longest, dtype=torch.bool, device=self.device)
        return filled.index_fill_(0, self.slots, True).unflatten(0, (self.num_sentences, self.longest))

    def clear_holes(self, flat: Tensor) -> Tensor:
        return flat.masked_fill_(~self.mask.flatten().view(-1, *[1] * (flat.dim() - 1)), 0.0)

    def to(self, device: torch.device | str) -> StaticLayout:
        moved = (one.to(device) for one in (self.positions, self.sentences, self.offsets))
        return StaticLayout(*moved, longest=self.longest)

    @cached_property
    def backwards(self) -> StaticLayout:
        """The layout with positions counted from the end of each sentence."""
        last = self.mask.sum(dim=1, dtype=torch.int32) - 1
        positions = last.index_select(0, self.sentences) - self.positions
        return StaticLayout(positions, self.sentences, self.offsets, longest=self.longest)


class _Pad(torch.autograd.Function):
    """Gather tokens into the rectangle. The gradient is a gather too, because no token is at two places that count."""

    @staticmethod
    def forward(ctx, values: Tensor, layout: Layout) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.layout = layout
        return values.index_select(0, layout.sources)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return gradient.index_select(0, ctx.layout.slots), None


class _Unpad(torch.autograd.Function):
    """Gather tokens from the rectangle. The gradient of places without a token is zero."""

    @staticmethod
    def forward(ctx, flat: Tensor, layout: Layout) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.layout = layout
        return flat.index_select(0, layout.slots)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return ctx.layout.clear_holes(gradient.index_select(0, ctx.layout.sources)), None


@dataclass(frozen=True)
class Ragged:
    """The values of all tokens of a batch, [N, ...], and the layout of its sentences."""

    values: Tensor
    layout: Layout

    def __post_init__(self) -> None:
        assert self.values.size(0) == self.layout.total, (self.values.shape, self.layout.total)

    @classmethod
    def from_lists(cls, sentences: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> Ragged:
        """Return the token ids of these sentences as one flat tensor."""
        flat = [token for sentence in sentences for token in sentence]
        layout = Layout([len(sentence) for sentence in sentences], device)
        return cls(torch.tensor(flat, dtype=torch.int64).to(device), layout)

    def to(self, device: torch.device | str) -> Ragged:
        """Return the values and their layout on another device."""
        return Ragged(self.values.to(device), self.layout.to(device))

    def as_lists(self) -> list[list[int]]:
        """Return the values of each sentence that is not empty."""
        flat, offsets = self.values.tolist(), self.layout.offsets.tolist()
        return [flat[begin:end] for begin, end in pairwise(offsets) if end > begin]

    def cut(self, sentence: int) -> tuple[Ragged, Ragged]:
        """Return the sentences before this one, and the rest."""
        lengths, device = self.layout.lengths, self.layout.device
        first, second = self.values.tensor_split((sum(lengths[:sentence]),))
        return Ragged(first, Layout(lengths[:sentence], device)), Ragged(second, Layout(lengths[sentence:], device))

    def split(self) -> tuple[Tensor, ...]:
        """Return the values of each sentence."""
        return self.values.split(list(self.layout.lengths))

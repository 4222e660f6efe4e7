"""The batch type: sentences laid end to end, and where each one lies.

Shapes: N tokens of a batch, B sentences, T the longest sentence.
No pad token exists. What needs a rectangle (`nn.attend` on a CPU) makes one from `Layout` and takes it apart again.
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
    """Where each sentence of a batch begins and ends. Everything derived from the lengths is made once, on demand."""

    def __init__(self, lengths: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.lengths = tuple(lengths)
        self.device = torch.device(device)

    @property
    def num_sentences(self) -> int:
        """Number of sentences, B."""
        return len(self.lengths)

    @cached_property
    def total(self) -> int:
        """Number of tokens, N."""
        return sum(self.lengths)

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest sentence, T."""
        return max(self.lengths, default=0)

    @cached_property
    def even(self) -> bool:
        """Whether all sentences have the same length, so that the batch already is a rectangle."""
        return self.total == self.longest * len(self.lengths)

    @cached_property
    def offsets(self) -> Tensor:
        """First token of each sentence, and N last: int32, [B+1]."""
        return torch.tensor((0, *self.lengths), dtype=torch.int32).cumsum(0, dtype=torch.int32).to(self.device)

    @cached_property
    def _lengths_on_cpu(self) -> NDArray[np.int64]:
        return np.array(self.lengths, dtype=np.int64)

    @cached_property
    def sentences(self) -> Tensor:
        """For each token, the number of its sentence: [N]."""
        return torch.from_numpy(np.arange(len(self.lengths)).repeat(self._lengths_on_cpu)).to(self.device)

    @cached_property
    def positions(self) -> Tensor:
        """For each token, its place in its sentence, from 0: [N]."""
        starts = self._lengths_on_cpu.cumsum() - self._lengths_on_cpu
        return torch.from_numpy(np.arange(self.total) - starts.repeat(self._lengths_on_cpu)).to(self.device)

    @cached_property
    def slots(self) -> Tensor:
        """For each token, its place in the flattened rectangle: [N]."""
        return self.sentences * self.longest + self.positions

    @cached_property
    def sources(self) -> Tensor:
        """For each place of the flattened rectangle, the token that fills it; the first token where there is none: [B*T]."""
        places = torch.zeros(self.num_sentences * self.longest, dtype=torch.int64, device=self.device)
        return places.index_copy_(0, self.slots, torch.arange(self.total, device=self.device))

    @cached_property
    def holes(self) -> Tensor:
        """The places of the flattened rectangle that hold no token."""
        return torch.from_numpy(np.flatnonzero(~self._mask_on_cpu)).to(self.device)

    def clear_holes(self, flat: Tensor) -> Tensor:
        """A flattened rectangle, [B*T, ...], with zeros where there is no token; the same memory."""
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
        """True for tokens whose sentence has none `by` places before them: [N]."""
        if by not in self._alone:
            alone = self.sentences.roll(by) != self.sentences
            alone[: max(by, 0)] = alone[max(self.total + min(by, 0), 0) :] = True  # rolled in from the other end
            self._alone[by] = alone
        return self._alone[by]

    def to(self, device: torch.device | str) -> Layout:
        """The same layout with its tensors on another device."""
        return self if torch.device(device) == self.device else Layout(self.lengths, device)

    def pad(self, values: Tensor) -> Tensor:
        """[N, ...] laid out as [B, T, ...], a free view where the batch is even.

        Behind a sentence stand copies of the first token: finite, and to be masked. They pass no gradient on.
        """
        if not self.even:
            learning = torch.is_grad_enabled()
            values = _Pad.apply(values, self) if learning else values.index_select(0, self.sources)  # type: ignore[no-untyped-call]
        return values.view(self.num_sentences, self.longest, *values.shape[1:])

    def unpad(self, padded: Tensor) -> Tensor:
        """[B, T, ...] without what lies behind each sentence: [N, ...]."""
        flat = padded.flatten(0, 1)
        if self.even:
            return flat
        learning = torch.is_grad_enabled()
        return _Unpad.apply(flat, self) if learning else flat.index_select(0, self.slots)  # type: ignore[no-untyped-call]


class StaticLayout(Layout):
    """A layout whose tensors keep their shapes from batch to batch, so that a recorded step can be played again.

    The lengths are known to the device alone. Behind the last sentence stands one of dummy tokens, behind that empty ones.
    """

    def __init__(self, positions: Tensor, sentences: Tensor, offsets: Tensor, *, longest: int) -> None:
        self.device = positions.device
        self.positions, self.sentences, self.offsets = positions, sentences, offsets
        self.total, self.longest = positions.size(0), longest

    @property
    def lengths(self) -> tuple[int, ...]:  # type: ignore[override]
        raise AssertionError("the lengths of a fixed layout are not known on the host")

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
        """True where the rectangle holds a token: [B, T]. All dummies share the first place of their sentence."""
        filled = torch.zeros(self.num_sentences * self.longest, dtype=torch.bool, device=self.device)
        return filled.index_fill_(0, self.slots, True).unflatten(0, (self.num_sentences, self.longest))

    def clear_holes(self, flat: Tensor) -> Tensor:
        return flat.masked_fill_(~self.mask.flatten().view(-1, *[1] * (flat.dim() - 1)), 0.0)

    def to(self, device: torch.device | str) -> StaticLayout:
        moved = (one.to(device) for one in (self.positions, self.sentences, self.offsets))
        return StaticLayout(*moved, longest=self.longest)

    @cached_property
    def backwards(self) -> StaticLayout:
        """The same tokens, each at its place from the end of its sentence."""
        last = self.mask.sum(dim=1, dtype=torch.int32) - 1
        positions = last.index_select(0, self.sentences) - self.positions
        return StaticLayout(positions, self.sentences, self.offsets, longest=self.longest)


class _Pad(torch.autograd.Function):
    """Tokens gathered into the rectangle. The gradient is a plain gather too: no token stands in two places that count."""

    @staticmethod
    def forward(ctx, values: Tensor, layout: Layout) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.layout = layout
        return values.index_select(0, layout.sources)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return gradient.index_select(0, ctx.layout.slots), None


class _Unpad(torch.autograd.Function):
    """Tokens gathered out of the rectangle; the gradient of the holes is zero, so that they change nothing."""

    @staticmethod
    def forward(ctx, flat: Tensor, layout: Layout) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.layout = layout
        return flat.index_select(0, layout.slots)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return ctx.layout.clear_holes(gradient.index_select(0, ctx.layout.sources)), None


@dataclass(frozen=True)
class Ragged:
    """Values of all tokens, [N, ...], and the layout that says whose they are."""

    values: Tensor
    layout: Layout

    def __post_init__(self) -> None:
        assert self.values.size(0) == self.layout.total, (self.values.shape, self.layout.total)

    @classmethod
    def from_lists(cls, sentences: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> Ragged:
        """Token ids of each sentence, end to end."""
        flat = [token for sentence in sentences for token in sentence]
        layout = Layout([len(sentence) for sentence in sentences], device)
        return cls(torch.tensor(flat, dtype=torch.int64).to(device), layout)

    def to(self, device: torch.device | str) -> Ragged:
        """Return the values and their layout on another device."""
        return Ragged(self.values.to(device), self.layout.to(device))

    def as_lists(self) -> list[list[int]]:
        """The values of each sentence, as numbers."""
        flat, offsets = self.values.tolist(), self.layout.offsets.tolist()
        return [flat[begin:end] for begin, end in pairwise(offsets) if end > begin]

    def cut(self, sentence: int) -> tuple[Ragged, Ragged]:
        """The sentences before this one, and the others."""
        lengths, device = self.layout.lengths, self.layout.device
        first, second = self.values.tensor_split((sum(lengths[:sentence]),))
        return Ragged(first, Layout(lengths[:sentence], device)), Ragged(second, Layout(lengths[sentence:], device))

    def split(self) -> tuple[Tensor, ...]:
        """The values of each sentence on its own."""
        return self.values.split(list(self.layout.lengths))

"""Batches of a fixed shape: both sides filled to a token budget with whole sentences, a few dummy tokens at the end.

Nothing is padded inside a batch, so sentences need not be of like length; they are taken in random order, and near the end
of a batch the next ones that still fit are preferred. For models that make rectangles of them there are a few shapes instead
of one, each for sentences up to a length. A batch is one row of int32 numbers: one copy takes it to a device.

Shapes: S source tokens, T target tokens, B sentences of a batch, the dummy one and empty ones among them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch_sampler import BatchSampler, Position
from regard.data.batching import Indices
from regard.data.column import IdColumn
from regard.data.columns import Encoded, EncodedPairs
from regard.data.loader import Batch
from regard.data.packed_shapes import Shape, one_shape, shapes_by_length
from regard.data.ragged import Ragged, StaticLayout
from regard.errors import DataError
from regard.text.tokenizer import BOS, EOS, UNK

CHOICE = 4  # sentences of which the next one is chosen, so that both sides fill alike
LOOK_AHEAD = 128  # sentences tried for the room that is left
NO_LABEL = -1  # of dummy tokens


def fill(
    source_lengths: Indices, target_lengths: Indices, shape: Shape, random: np.random.Generator
) -> tuple[list[Indices], Indices]:
    """All sentences in random order, in full batches of this shape, and those left over, which fill none."""
    order = random.permutation(len(source_lengths))
    waiting = deque(zip(order.tolist(), source_lengths[order].tolist(), target_lengths[order].tolist(), strict=True))
    batches: list[Indices] = []
    left: list[int] = []
    S, T = shape.source_tokens, shape.target_tokens
    while waiting:
        chosen: list[int] = []
        passed: list[tuple[int, int, int]] = []  # that did not fit any more
        next_few: list[tuple[int, int, int]] = []
        room_s, room_t = S, T
        while len(passed) < LOOK_AHEAD and len(chosen) < shape.sentences - 1:
            while waiting and len(next_few) < CHOICE:
                next_few.append(waiting.popleft())
            fitting = [one for one in next_few if one[1] <= room_s and one[2] <= room_t]
            if not next_few:
                break
            if not fitting:
                passed += next_few
                next_few = []
                continue
            # the one after which both sides are filled most alike
            best = min(fitting, key=lambda one: abs((room_s - one[1]) * T - (room_t - one[2]) * S))
            next_few.remove(best)
            chosen.append(best[0])
            room_s, room_t = room_s - best[1], room_t - best[2]
        passed += next_few
        waiting.extendleft(reversed(passed))
        if passed or len(chosen) == shape.sentences - 1:
            batches.append(np.array(chosen, dtype=np.int64))
        else:
            left = chosen
    return batches, np.array(left, dtype=np.int64)


def top_up(batch: Indices, others: Indices, source_lengths: Indices, target_lengths: Indices, shape: Shape) -> Indices:
    """Those of the others, in this order, that have room in the batch too."""
    room_s = shape.source_tokens - int(source_lengths[batch].sum())
    room_t = shape.target_tokens - int(target_lengths[batch].sum())
    found: list[int] = []
    passed = 0
    for one, s, t in zip(
        others.tolist(), source_lengths[others].tolist(), target_lengths[others].tolist(), strict=True
    ):
        if passed == LOOK_AHEAD or len(batch) + len(found) == shape.sentences - 1:
            break
        if s <= room_s and t <= room_t:
            found.append(one)
            room_s, room_t = room_s - s, room_t - t
        else:
            passed += 1
    return np.array(found, dtype=np.int64)


def write_row(row: NDArray[np.int32], sides: EncodedPairs, chosen: Indices, shape: Shape) -> None:
    """Writes the batch of these pairs into a row."""
    parts = np.split(row, np.cumsum(shape.parts)[:-1])
    _write_side(parts[0], parts[1], parts[2], parts[7], sides.source.lengths_of(chosen), EOS)
    _write_side(parts[4], parts[5], parts[6], parts[8], sides.target.lengths_of(chosen), NO_LABEL)
    _put_ids(parts[0], sides.source, chosen)
    real = _put_ids(parts[4], sides.target, chosen)
    labels, inputs = parts[4], parts[3]
    inputs[1:] = labels[:-1]
    inputs[parts[8][: len(chosen)]] = BOS
    inputs[real:] = EOS
    if shape.fertilities:
        assert sides.fertilities is not None
        told = sides.fertilities.ids_of(chosen, end=1)  # EOS becomes EOS
        parts[9][: len(told)], parts[9][len(told) :] = told, NO_LABEL
    parts[10][0] = real


def _write_side(
    ids: NDArray[np.int32], positions: NDArray[np.int32], sentences: NDArray[np.int32], offsets: NDArray[np.int32],
    lengths: Indices, dummy: int,
) -> None:  # fmt: skip
    """Everything of one side but the real ids: the dummies behind them make a sentence of their own, at position 0."""
    ends = (lengths + 1).cumsum()
    real = int(ends[-1])
    offsets[0], offsets[1 : len(ends) + 1], offsets[len(ends) + 1 :] = 0, ends, len(ids)
    sentences[:real] = np.repeat(np.arange(len(ends), dtype=np.int32), lengths + 1)
    sentences[real:] = len(ends)
    positions[:real] = np.arange(real, dtype=np.int32) - offsets[sentences[:real]]
    positions[real:] = 0
    ids[real:] = dummy


def _put_ids(ids: NDArray[np.int32], store: IdColumn, chosen: Indices) -> int:
    """The ids of these sentences, each with EOS behind it; how many there are."""
    values = store.ids_of(chosen, end=EOS)
    ids[: len(values)] = values
    return len(values)


@dataclass(frozen=True)
class PackedBatch:
    """A batch as one row, on any device."""

    row: Tensor
    shape: Shape
    num_tokens: int

    def as_lists(self) -> dict[str, list[list[int]]]:
        """The ids of each sentence, dummies among them, for a person to look at."""
        return self.unpack().as_lists()

    def unpack(self) -> Batch:
        """The batch itself: views of the row."""
        return unpack(self.row, self.shape, self.num_tokens)


def largest_rectangle(shapes: Sequence[Shape], *, times: int) -> Batch:
    """A batch of the shape with the largest rectangle, and so many times as large as that; few of its tokens are real."""
    one = max(shapes, key=lambda shape: shape.sentences * shape.longest)
    source, target, sentences = (times * size for size in (one.source_tokens, one.target_tokens, one.sentences))
    shape = replace(one, source_tokens=source, target_tokens=target, sentences=sentences)
    store = IdColumn.from_lists([[UNK] * (shape.longest - 1)])
    row = np.empty(shape.numbers, dtype=np.int32)
    write_row(row, EncodedPairs(store, store), np.zeros(1, dtype=np.int64), shape)
    return unpack(torch.from_numpy(row), shape, shape.target_tokens)


def unpack(row: Tensor, shape: Shape, num_tokens: int) -> Batch:
    """The batch that a row holds."""
    source, s_at, s_of, target, labels, t_at, t_of, s_offsets, t_offsets, told, _ = row.split(shape.parts)
    return Batch(
        Ragged(source, StaticLayout(s_at, s_of, s_offsets, longest=shape.longest)),
        Ragged(target, StaticLayout(t_at, t_of, t_offsets, longest=shape.longest)),
        labels,
        num_tokens,
        told if shape.fertilities else None,
    )


@dataclass(frozen=True)
class PackedRows:
    """Rows of many batches, [rows, numbers of the longest], and the position after each batch."""

    rows: Tensor
    shapes: list[Shape]
    tokens: list[int]  # of the targets
    positions: list[Position]

    def batches(self) -> Iterator[tuple[PackedBatch, Position]]:
        """Each batch, with the position after it."""
        for row, shape, tokens, after in zip(self.rows, self.shapes, self.tokens, self.positions, strict=True):
            yield PackedBatch(row[: shape.numbers], shape, tokens), after


class PackedLoader(BatchSampler):
    """Batches of one fixed shape, or, where those of like length are to be together, of a few; written in blocks."""

    BLOCK = 2**22  # numbers of a block of rows

    def __init__(
        self,
        sides_of: Callable[[int], Encoded],
        *,
        budget: int,
        max_length: int,
        seed: int,
        similar_lengths: bool = False,
    ) -> None:
        super().__init__(sides_of, budget=budget, max_length=max_length, seed=seed)
        sides = sides_of(0)
        if not sides.upto(max_length).pairs:
            raise DataError(f"every pair has a side of more than {max_length} tokens; raise data.max_length")
        told = isinstance(sides, EncodedPairs) and sides.fertilities is not None
        shape_them = shapes_by_length if similar_lengths else one_shape
        self.shapes = shape_them(sides, max_length, budget, fertilities=told)

    def cut(self, source_lengths: Indices, target_lengths: Indices, random: np.random.Generator) -> list[Indices]:
        batches: list[Indices] = []
        longer = np.maximum(source_lengths, target_lengths)
        left = np.flatnonzero(longer <= self.shapes[-1].longest)
        for shape, shorter in zip(self.shapes[::-1], [*self.shapes[-2::-1], None], strict=True):  # the longest first
            least = 0 if shorter is None else shorter.longest + 1
            those, left = left[longer[left] >= least], left[longer[left] < least]
            full, rest = fill(source_lengths[those], target_lengths[those], shape, random)
            batches += [those[batch] for batch in full]
            last = those[rest]
            if shorter is not None and len(
                last
            ):  # shorter ones fill the last batch: long ones are rare, and none is lost
                nearest = random.permutation(left)
                nearest = nearest[np.argsort(-longer[nearest], kind="stable")]
                also = top_up(last, nearest, source_lengths, target_lengths, shape)
                batches.append(np.concatenate([last, also]))
                left = np.setdiff1d(left, also, assume_unique=True)
            elif len(last) and not batches:
                batches.append(last)
        order = random.permutation(len(batches)) if len(self.shapes) > 1 else range(len(batches))
        return [batches[number] for number in order]

    def batches(self, position: Position, *, rank: int = 0, ranks: int = 1) -> Iterator[tuple[PackedBatch, Position]]:
        """Each batch of a process from here on, with the position after those of all processes."""
        for block in self.blocks_of_rows(position, rank=rank, ranks=ranks):
            yield from block.batches()

    def blocks_of_rows(self, position: Position, *, rank: int = 0, ranks: int = 1) -> Iterator[PackedRows]:
        """The same, many batches at a time."""
        width = max(shape.numbers for shape in self.shapes)
        most = max(1, self.BLOCK // width)
        chosen = []
        for one in self.own(position, rank=rank, ranks=ranks):
            chosen.append(one)
            if len(chosen) < most and one[2].batch > 0:  # nothing is read of a block of pairs before its time
                continue
            rows = np.empty((len(chosen), width), dtype=np.int32)
            shapes = [self._shape_of(sides, pairs) for sides, pairs, _ in chosen]
            for row, shape, (sides, pairs, _) in zip(rows, shapes, chosen, strict=True):
                write_row(row[: shape.numbers], sides, pairs, shape)
            tokens = [int(row[shape.numbers - 1]) for row, shape in zip(rows, shapes, strict=True)]
            yield PackedRows(torch.from_numpy(rows), shapes, tokens, [after for _, _, after in chosen])
            chosen = []

    def _shape_of(self, sides: EncodedPairs, pairs: Indices) -> Shape:
        """The smallest that holds them."""
        source_lengths, target_lengths = (lengths + 1 for lengths in sides.lengths_of(pairs))  # EOS
        return next(shape for shape in self.shapes if shape.holds(source_lengths, target_lengths))

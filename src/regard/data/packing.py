"""Batches of a static shape: source and target filled to a token budget with complete sentences, then a few dummy tokens.

Nothing is padded inside a batch, so sentences need not be of similar length. They are taken in random order, and near the
end of a batch the next ones that still fit are preferred. Models that pad to rectangles get a few shapes instead of one,
each for sentences up to a length. A batch is one row of int32 numbers, so a single copy takes it to a device.

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

from regard.data.batch import NO_LABEL, Batch, Collate
from regard.data.batch_sampler import BatchSampler, Position, too_long, with_added
from regard.data.columns import Columns, Dataset, Indices
from regard.data.packed_shapes import PackedShape, one_shape, shapes_by_length
from regard.data.ragged import Ragged, StaticLayout

CHOICE = 4  # sentences of which the next one is chosen, so that source and target fill alike
LOOK_AHEAD = 128  # sentences tried for the room that is left
DUMMY = 0  # id of dummy tokens: any that exists


def fill(
    source_lengths: Indices, target_lengths: Indices, shape: PackedShape, random: np.random.Generator
) -> tuple[list[Indices], Indices]:
    """Return full batches of this shape, of all sentences in random order, and the sentences left over."""
    order = random.permutation(len(source_lengths))
    waiting = deque(zip(order.tolist(), source_lengths[order].tolist(), target_lengths[order].tolist(), strict=True))
    batches: list[Indices] = []
    left: list[int] = []
    S, T = shape.source_tokens, shape.target_tokens
    while waiting:
        chosen: list[int] = []
        passed: list[tuple[int, int, int]] = []  # did not fit any more
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
            # The one after which source and target are filled most alike.
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


def top_up(
    batch: Indices, others: Indices, source_lengths: Indices, target_lengths: Indices, shape: PackedShape
) -> Indices:
    """Return those of the other sentences, in this order, that still fit into the batch."""
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


def write_row(row: NDArray[np.int32], batch: Batch, shape: PackedShape) -> None:
    """Write a CPU batch of sequence pairs into a row."""
    fields = {name: row[where] for name, where in shape.fields.items()}
    assert batch.target is not None and batch.labels.layout is batch.target.layout, "a packed batch holds pairs"
    _write_sequences(fields, "source", batch.source)
    _write_sequences(fields, "target", batch.target)
    _write_values(fields["labels"], batch.labels, NO_LABEL)
    for name in shape.extras:
        _write_values(fields[name], batch.extras[name], NO_LABEL)
    fields["num_tokens"][0] = batch.num_tokens


def _write_sequences(fields: dict[str, NDArray[np.int32]], name: str, sequences: Ragged) -> None:
    """Write ids and layout of some sequences. Dummy tokens behind them make a sentence of their own, at position 0."""
    layout, real = sequences.layout, sequences.layout.total
    _write_values(fields[name], sequences, DUMMY)
    positions, sentences, offsets = (fields[f"{name} {part}"] for part in ("positions", "sentences", "offsets"))
    positions[:real], positions[real:] = layout.positions.numpy(), 0
    sentences[:real], sentences[real:] = layout.sentences.numpy(), layout.num_sentences
    offsets[: layout.num_sentences + 1] = layout.offsets.numpy()
    offsets[layout.num_sentences + 1 :] = len(fields[name])


def _write_values(field: NDArray[np.int32], sequences: Ragged, dummy: int) -> None:
    real = sequences.layout.total
    field[:real], field[real:] = sequences.values.numpy(), dummy


@dataclass(frozen=True)
class PackedBatch:
    """A batch as one row, on any device."""

    row: Tensor
    shape: PackedShape
    num_tokens: int

    def as_lists(self) -> dict[str, list[list[int]]]:
        """Return the ids of each sentence, dummy tokens among them, for a person to look at."""
        return self.unpack().as_lists()

    def unpack(self) -> Batch:
        """Return the batch as views of the row."""
        return unpack(self.row, self.shape, self.num_tokens)


def largest_rectangle(shapes: Sequence[PackedShape], probe: Callable[[int], Batch], *, times: int) -> Batch:
    """Return a batch of `times` the shape with the largest rectangle; few of its tokens are real.

    `probe(length)` makes a batch of one example of this length.
    """
    one = max(shapes, key=lambda shape: shape.sentences * shape.longest)
    source, target, sentences = (times * size for size in (one.source_tokens, one.target_tokens, one.sentences))
    shape = replace(one, source_tokens=source, target_tokens=target, sentences=sentences, extras=())
    row = np.empty(shape.numbers, dtype=np.int32)
    write_row(row, probe(shape.longest - 1), shape)
    return unpack(torch.from_numpy(row), shape, shape.target_tokens)


def unpack(row: Tensor, shape: PackedShape, num_tokens: int) -> Batch:
    """Return the batch that a row holds."""
    fields = {name: row[where] for name, where in shape.fields.items()}
    source, target = (
        StaticLayout(
            fields[f"{name} positions"], fields[f"{name} sentences"], fields[f"{name} offsets"], longest=shape.longest
        )
        for name in ("source", "target")
    )
    return Batch(
        Ragged(fields["source"], source),
        Ragged(fields["target"], target),
        Ragged(fields["labels"], target),
        num_tokens,
        {name: Ragged(fields[name], source) for name in shape.extras},
    )


@dataclass(frozen=True)
class PackedRows:
    """Rows of many batches, [rows, numbers of the longest], and the position after each batch."""

    rows: Tensor
    shapes: list[PackedShape]
    tokens: list[int]  # labels that count
    positions: list[Position]

    def batches(self) -> Iterator[tuple[PackedBatch, Position]]:
        """Yield each batch, with the position after it."""
        for row, shape, tokens, after in zip(self.rows, self.shapes, self.tokens, self.positions, strict=True):
            yield PackedBatch(row[: shape.numbers], shape, tokens), after


class PackedLoader(BatchSampler):
    """Batches of one static shape, or of a few where sentences of similar length belong together; written in blocks."""

    BLOCK = 2**22  # numbers of a block of rows

    def __init__(
        self,
        dataset_of: Callable[[int], Dataset],
        collate: Collate,
        *,
        added: tuple[int, ...],
        budget: int,
        max_length: int,
        seed: int,
        similar_lengths: bool = False,
        extras: tuple[str, ...] = (),
    ) -> None:
        super().__init__(dataset_of, collate, added=added, budget=budget, max_length=max_length, seed=seed)
        dataset = dataset_of(0)
        if not dataset.upto(max_length).examples:
            raise too_long(max_length)
        make_shapes = shapes_by_length if similar_lengths else one_shape
        self.shapes = make_shapes(dataset, max_length, budget, extras=extras)

    def cut(self, lengths: Sequence[Indices], random: np.random.Generator) -> list[Indices]:
        source_lengths, target_lengths = lengths
        batches: list[Indices] = []
        longer = np.maximum(source_lengths, target_lengths)
        left = np.flatnonzero(longer <= self.shapes[-1].longest)
        # The longest first.
        for shape, shorter in zip(self.shapes[::-1], [*self.shapes[-2::-1], None], strict=True):
            least = 0 if shorter is None else shorter.longest + 1
            those, left = left[longer[left] >= least], left[longer[left] < least]
            full, rest = fill(source_lengths[those], target_lengths[those], shape, random)
            batches += [those[batch] for batch in full]
            last = those[rest]
            if shorter is not None and len(last):
                # Shorter ones fill the last batch: long ones are rare, and none is lost.
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
        """Yield each batch of a process from this position on, with the position after those of all processes."""
        for block in self.blocks_of_rows(position, rank=rank, ranks=ranks):
            yield from block.batches()

    def blocks_of_rows(self, position: Position, *, rank: int = 0, ranks: int = 1) -> Iterator[PackedRows]:
        """Yield the same, many batches at a time."""
        width = max(shape.numbers for shape in self.shapes)
        most = max(1, self.BLOCK // width)
        chosen = []
        for one in self.own(position, rank=rank, ranks=ranks):
            chosen.append(one)
            # A block of examples is read only when its turn has come.
            if len(chosen) < most and one[2].batch > 0:
                continue
            rows = np.empty((len(chosen), width), dtype=np.int32)
            shapes = [self._shape_of(columns, examples) for columns, examples, _ in chosen]
            for row, shape, (columns, examples, _) in zip(rows, shapes, chosen, strict=True):
                write_row(row[: shape.numbers], self.collate(columns, examples), shape)
            tokens = [int(row[shape.numbers - 1]) for row, shape in zip(rows, shapes, strict=True)]
            yield PackedRows(torch.from_numpy(rows), shapes, tokens, [after for _, _, after in chosen])
            chosen = []

    def _shape_of(self, columns: Columns, examples: Indices) -> PackedShape:
        """Return the smallest shape that holds these examples."""
        lengths = with_added(columns.lengths_of(examples), self.added)
        return next(shape for shape in self.shapes if shape.holds(*lengths))

"""Batches of a static shape: filled to a token budget with complete examples, then a few dummy tokens.

Nothing is padded inside a batch, so examples need not be of similar length. They are taken in random order, and near the end
of a batch the next ones that still fit are preferred. Models that pad to rectangles get a few shapes instead of one, each
for examples up to a length.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import le, sub

import numpy as np
import torch

from regard.data.batch import Collate
from regard.data.batch_sampler import BatchSampler, Position, too_long
from regard.data.batch_structure import ExampleLengths, structure_of
from regard.data.columns import Columns, Dataset, Indices
from regard.data.packed_rows import PackedBatch, PackedRows, write_row
from regard.data.packed_shapes import PackedShape, one_shape, shapes_by_length

CHOICE = 4  # examples of which the next one is chosen, so that source and target fill alike
LOOK_AHEAD = 128  # examples tried for the room that is left

Example = tuple[int, tuple[int, ...], int]  # its number, what it adds to each count, and its tilt


def fill(sizes: Sequence[Indices], shape: PackedShape, random: np.random.Generator) -> tuple[list[Indices], Indices]:
    """Return full batches of this shape, of all examples in random order, and the examples left over.

    `sizes` are what each example adds to each count of the shape's structure.
    """
    order = random.permutation(len(sizes[0]))
    full, end = shape.limits, len(shape.structure.limits) - 1
    # Positive for an example that fills the first limiting column more than the last one.
    tilts = (sizes[0] * full[end] - sizes[end] * full[0])[order].tolist()
    adds = zip(*(one[order].tolist() for one in sizes), strict=True)
    waiting: deque[Example] = deque(zip(order.tolist(), adds, tilts, strict=True))
    largest = tuple(int(one.max(initial=0)) for one in sizes)
    batches: list[Indices] = []
    left: list[int] = []
    while waiting:
        chosen: list[int] = []
        passed: list[Example] = []  # did not fit any more
        next_few: list[Example] = []
        room, tilt = full, 0
        while len(passed) < LOOK_AHEAD and len(chosen) < shape.examples - 1:
            # So many more fit whichever they are, and need not be tried.
            bounds = (have // most for have, most in zip(room, largest, strict=True) if most)
            certain = min(bounds, default=len(waiting))
            taken = _take(min(certain, shape.examples - 1 - len(chosen)), tilt, next_few, waiting)
            if not taken:
                while waiting and len(next_few) < CHOICE:
                    next_few.append(waiting.popleft())
                if not next_few:
                    break
                fitting = [one for one in next_few if all(map(le, one[1], room))]
                if not fitting:
                    passed += next_few
                    next_few = []
                    continue
                # The one after which both columns are filled most alike.
                taken = [min(fitting, key=lambda one: abs(tilt + one[2]))]
                next_few.remove(taken[0])
            chosen += [one[0] for one in taken]
            tilt += sum(one[2] for one in taken)
            room = tuple(map(sub, room, map(sum, zip(*(one[1] for one in taken), strict=True))))
        passed += next_few
        waiting.extendleft(reversed(passed))
        if passed or len(chosen) == shape.examples - 1:
            batches.append(np.array(chosen, dtype=np.int64))
        else:
            left = chosen
    return batches, np.array(left, dtype=np.int64)


def _take(count: int, tilt: int, next_few: list[Example], waiting: deque[Example]) -> list[Example]:
    """Take up to so many examples, each the one of the next four after which both columns are filled most alike.

    They are tried one by one without a loop: planning an epoch spends most of its time here.
    """
    while waiting and len(next_few) < CHOICE - 1:
        next_few.append(waiting.popleft())
    tilts = [one[2] for one in next_few]
    taken: list[Example] = []
    for _ in range(min(count, len(waiting))):
        one = waiting.popleft()
        next_few.append(one)
        tilts.append(one[2])
        first, second, third, fourth = tilts
        place, least = 0, abs(tilt + first)
        if (gap := abs(tilt + second)) < least:
            place, least = 1, gap
        if (gap := abs(tilt + third)) < least:
            place, least = 2, gap
        if abs(tilt + fourth) < least:
            place = 3
        tilt += tilts.pop(place)
        taken.append(next_few.pop(place))
    return taken


def top_up(batch: Indices, others: Indices, sizes: Sequence[Indices], shape: PackedShape) -> Indices:
    """Return those of the other examples, in this order, that still fit into the batch."""
    room = tuple(limit - int(one[batch].sum()) for one, limit in zip(sizes, shape.limits, strict=True))
    found: list[int] = []
    passed = 0
    for one, adds in zip(others.tolist(), zip(*(size[others].tolist() for size in sizes), strict=True), strict=True):
        if passed == LOOK_AHEAD or len(batch) + len(found) == shape.examples - 1:
            break
        if all(map(le, adds, room)):
            found.append(one)
            room = tuple(map(sub, room, adds))
        else:
            passed += 1
    return np.array(found, dtype=np.int64)


class PackedLoader(BatchSampler):
    """Batches of one static shape, or of a few where examples of similar length belong together; written in blocks.

    The shapes follow from the first epoch. Examples of later epochs that fit none of them are left out.
    """

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
        left_out: int = 0,
    ) -> None:
        super().__init__(
            dataset_of, collate, added=added, budget=budget, max_length=max_length, seed=seed, left_out=left_out
        )
        dataset = dataset_of(0)
        if not dataset.upto(max_length).examples:
            raise too_long(max_length)
        self.structure = structure_of(dataset, collate, added=added, max_length=max_length)
        make_shapes = shapes_by_length if similar_lengths else one_shape
        self.shapes = make_shapes(dataset, self.structure, max_length, budget)
        self.counted = dataset  # all of its examples fit

    def sizes_of(self, dataset: Dataset, rows: Indices, lengths: Sequence[Indices]) -> list[Indices]:
        known = ExampleLengths(dataset, rows, lengths)
        return [*self.structure.sizes_of(known), *self.structure.longest_of(known)]

    def misfits(self, dataset: Dataset) -> int:
        if not isinstance(dataset, Columns):
            # The ids of a store are the same in every epoch.
            return 0
        rows = np.arange(len(dataset))
        lengths = dataset.lengths_of(rows)
        short = np.maximum.reduce(lengths) <= self.max_length
        known = ExampleLengths(dataset, rows[short], [one[short] for one in lengths])
        fits = self.shapes[-1].takes(self.structure.sizes_of(known), self.structure.longest_of(known))
        return int((~fits).sum())

    def cut(self, sizes: Sequence[Indices], random: np.random.Generator) -> list[Indices]:
        counts = len(self.structure.counts)
        sizes, longest = list(sizes[:counts]), list(sizes[counts:])
        batches: list[Indices] = []
        longer = np.maximum.reduce(sizes[: len(self.structure.limits)])
        left = np.flatnonzero(self.shapes[-1].takes(sizes, longest))
        # The longest first.
        for shape, shorter in zip(self.shapes[::-1], [*self.shapes[-2::-1], None], strict=True):
            here = np.ones(len(left), dtype=bool) if shorter is None else ~shorter.takes(sizes, longest)[left]
            those, left = left[here], left[~here]
            full, rest = fill([one[those] for one in sizes], shape, random)
            batches += [those[batch] for batch in full]
            last = those[rest]
            if shorter is not None and len(last):
                # Shorter ones fill the last batch: long ones are rare, and none is lost.
                nearest = random.permutation(left)
                nearest = nearest[np.argsort(-longer[nearest], kind="stable")]
                also = top_up(last, nearest, sizes, shape)
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
            # Zeros: what lies between the fields of a row is the same every time.
            rows = np.zeros((len(chosen), width), dtype=np.int32)
            shapes = [self._shape_of(columns, examples) for columns, examples, _ in chosen]
            for row, shape, (columns, examples, _) in zip(rows, shapes, chosen, strict=True):
                write_row(row[: shape.numbers], self.collate(columns, examples), shape)
            tokens = [int(row[shape.numbers - 1]) for row, shape in zip(rows, shapes, strict=True)]
            yield PackedRows(torch.from_numpy(rows), shapes, tokens, [after for _, _, after in chosen])
            chosen = []

    def _shape_of(self, columns: Columns, examples: Indices) -> PackedShape:
        """Return the smallest shape that holds these examples."""
        lengths = ExampleLengths(columns, examples)
        sizes, longest = self.structure.sizes_of(lengths), self.structure.longest_of(lengths)
        return next(shape for shape in self.shapes if shape.holds(sizes, longest))

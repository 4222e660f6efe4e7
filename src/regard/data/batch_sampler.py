"""The order of training examples and the batches they make: a function of (seed, epoch), so training can resume anywhere.

The examples of an epoch are shuffled (`data.shuffle`) and taken in blocks. A block is filtered by length and cut into
batches of examples of similar length. Lengths are one array per column; a budget limits the tokens of a batch in every
column.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.batch import Batch, Collate
from regard.data.budget import cut_to_budget
from regard.data.columns import Columns, Dataset, Indices
from regard.data.shuffle import Shuffle
from regard.errors import DataError
from regard.messages import counted

# Enough that sentences of similar length meet, and that batches fill; 2 MB of lengths.
EXAMPLES_PER_BLOCK = 2**17


def bucketed_batches(lengths: Sequence[Indices], *, budget: int, random: np.random.Generator) -> list[Indices]:
    """Return batches of examples of similar length within the budget, each example once; ties and batches shuffled."""
    shuffled = random.permutation(len(lengths[0]))
    order = shuffled[np.lexsort([one[shuffled] for one in lengths])]
    batches = cut_to_budget(order, lengths, budget)
    return [batches[i] for i in random.permutation(len(batches))]


@dataclass(frozen=True)
class Position:
    """How far training is in its data."""

    epoch: int = 0
    block: int = 0
    batch: int = 0  # of the block


def num_blocks(examples: int) -> int:
    """Return the number of blocks that so many examples make."""
    return max(1, round(examples / EXAMPLES_PER_BLOCK))


class BatchSampler(ABC):
    """Endless batches of examples, by row number. Examples of more than `max_length` tokens in a column are left out.

    `dataset_of(epoch)` returns the examples of an epoch: with subword sampling every epoch has its own. `collate` makes a
    batch of some rows and adds `added` tokens to each example, a number per column. An epoch that leaves out more examples
    than any before it, or than the `left_out` ones that the user knows of, adds a sentence to `notices`.
    """

    def __init__(
        self,
        dataset_of: Callable[[int], Dataset],
        collate: Collate,
        *,
        added: tuple[int, ...],
        budget: int,
        max_length: int,
        seed: int,
        left_out: int = 0,
    ) -> None:
        self.dataset_of, self.collate, self.added = dataset_of, collate, added
        self.budget, self.max_length, self.seed = budget, max_length, seed
        self.left_out = left_out
        self.notices: deque[str] = deque()  # another thread may read them
        self.counted: Dataset | None = None  # whose examples that are left out have been counted last

    def sizes_of(self, dataset: Dataset, rows: Indices, lengths: Sequence[Indices]) -> Sequence[Indices]:
        """Return what `cut` needs to know of these examples, given their lengths; by default those with added tokens."""
        return with_added(lengths, self.added)

    @abstractmethod
    def cut(self, sizes: Sequence[Indices], random: np.random.Generator) -> list[Indices]:
        """Return the batches of a block, by place in it, given the `sizes_of` its examples."""

    def misfits(self, dataset: Dataset) -> int:
        """Return how many examples that are short enough fit into no batch."""
        return 0

    def _count_left_out(self, epoch: int, dataset: Dataset) -> None:
        """Add a notice if these examples of an epoch are not those that were counted last, and more are left out."""
        if dataset is self.counted:
            return
        self.counted = dataset
        misfits, too_long = self.misfits(dataset), len(dataset) - dataset.upto(self.max_length).examples
        if too_long + misfits <= self.left_out:
            return
        self.left_out = too_long + misfits
        reasons = {
            f"{too_long:,} with more than {counted(self.max_length, 'token')} on a side": too_long,
            f"{misfits:,} longer than those of the first epoch": misfits,
        }
        which = " and ".join(reason for reason, count in reasons.items() if count)
        self.notices.append(f"of {counted(len(dataset), 'example')}, epoch {epoch} leaves out {which}")

    def plan(self, epoch: int, block: int = 0) -> tuple[Dataset, list[Indices], int]:
        """Return the epoch's examples, the batches of a block in order, and the number of blocks."""
        dataset = self.dataset_of(epoch)
        self._count_left_out(epoch, dataset)
        count = len(dataset)
        blocks = num_blocks(count)
        bounds = [count * number // blocks for number in (block, block + 1)]
        rows = Shuffle(count, (self.seed, epoch))[bounds[0] : bounds[1]]
        lengths: Sequence[Indices] = dataset.lengths_of(rows)
        kept = np.maximum.reduce(lengths) <= self.max_length
        rows, lengths = rows[kept], [one[kept] for one in lengths]
        random = np.random.default_rng((self.seed, epoch, block))
        batches = self.cut(self.sizes_of(dataset, rows, lengths), random) if len(rows) else []
        return dataset, [rows[batch] for batch in batches], blocks

    def blocks(self, position: Position) -> Iterator[tuple[Columns, list[Indices], list[Position]]]:
        """Yield the remaining batches of this block, then those of each later block, with the position after each."""
        epoch, block, first = position.epoch, position.block, position.batch
        empty = 0  # blocks in a row in which every example is too long
        while True:
            dataset, plan, blocks = self.plan(epoch, block)
            empty = 0 if plan else empty + 1
            if empty > blocks:
                raise too_long(self.max_length)
            ended = Position(epoch, block + 1) if block + 1 < blocks else Position(epoch + 1)
            after = [Position(epoch, block, number) for number in range(first + 1, len(plan))]
            if plan[first:]:
                yield *dataset.read(plan[first:]), [*after, ended]
            epoch, block, first = ended.epoch, ended.block, 0

    def own(self, position: Position, *, rank: int, ranks: int) -> Iterator[tuple[Columns, Indices, Position]]:
        """Yield the batches of one of several processes: columns, rows, and the position after everyone's batch.

        Processes take batches in turn, so all take equally many.
        """
        number = 0
        for columns, plan, positions in self.blocks(position):
            for rows, after in zip(plan, positions, strict=True):
                if number == rank:
                    mine = columns, rows
                number = (number + 1) % ranks
                if number == 0:
                    yield *mine, after


def with_added(lengths: Sequence[Indices], added: tuple[int, ...]) -> tuple[Indices, ...]:
    """Return the lengths of each column with the tokens that collation adds."""
    return tuple(one + more for one, more in zip(lengths, added, strict=True))


def too_long(max_length: int) -> DataError:
    """Return the error for a corpus without a single example that is short enough."""
    return DataError(f"every example has a sequence of more than {counted(max_length, 'token')}; raise data.max_length")


class Loader(BatchSampler):
    """Batches of examples of similar length, used wherever batches are not packed."""

    def cut(self, sizes: Sequence[Indices], random: np.random.Generator) -> list[Indices]:
        return bucketed_batches(sizes, budget=self.budget, random=random)

    def batches(
        self, position: Position, *, rank: int = 0, ranks: int = 1
    ) -> Generator[tuple[Batch, Position], None, None]:
        """Yield each batch of a process from this position on, with the position after those of all processes."""
        for columns, rows, after in self.own(position, rank=rank, ranks=ranks):
            yield self.collate(columns, rows), after


def dev_batches(
    columns: Columns, collate: Collate, *, added: tuple[int, ...], budget: int, max_length: int
) -> list[Batch]:
    """Return all examples up to the length in batches of similar length: for a dev set, where order does not matter."""
    lengths = columns.lengths_of(np.arange(len(columns)))
    longest = np.maximum.reduce(lengths)
    lengths = with_added(lengths, added)
    order = np.lexsort(lengths)
    order = order[longest[order] <= max_length]
    return [collate(columns, rows) for rows in cut_to_budget(order, lengths, budget)]

"""Which pairs come when: a function of (seed, epoch), a block of pairs at a time, so that any place is reached at once.

The pairs of an epoch are shuffled (`data.shuffle`) and taken in blocks; a block is filtered by length and cut into batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from regard.data.batching import Indices
from regard.data.columns import Encoded, EncodedPairs
from regard.data.shuffle import Shuffle
from regard.errors import DataError

PAIRS_A_BLOCK = 2**17  # enough that sentences of like length meet, and that batches fill; 2 MB of lengths


@dataclass(frozen=True)
class Position:
    """How far training is in its data."""

    epoch: int = 0
    block: int = 0
    batch: int = 0  # of the block


def num_blocks(pairs: int) -> int:
    """Of so many pairs."""
    return max(1, round(pairs / PAIRS_A_BLOCK))


class BatchSampler(ABC):
    """Endless batches of pairs, by number. `sides_of(epoch)` gives the ids; pairs with a longer side are left out.

    With subword sampling every epoch has ids of its own.
    """

    def __init__(self, sides_of: Callable[[int], Encoded], *, budget: int, max_length: int, seed: int) -> None:
        self.sides_of = sides_of
        self.budget = budget
        self.max_length = max_length
        self.seed = seed

    @abstractmethod
    def cut(self, source_lengths: Indices, target_lengths: Indices, random: np.random.Generator) -> list[Indices]:
        """The batches of a block, by place in it, given its lengths (EOS among them)."""

    def plan(self, epoch: int, block: int = 0) -> tuple[Encoded, list[Indices], int]:
        """The epoch's ids, the batches of a block in order, and the number of blocks."""
        sides = self.sides_of(epoch)
        count = len(sides)
        blocks = num_blocks(count)
        bounds = [count * number // blocks for number in (block, block + 1)]
        rows = Shuffle(count, (self.seed, epoch))[bounds[0] : bounds[1]]
        source_lengths, target_lengths = (lengths + 1 for lengths in sides.lengths_of(rows))  # EOS
        kept = np.maximum(source_lengths, target_lengths) <= self.max_length + 1
        rows, source_lengths, target_lengths = rows[kept], source_lengths[kept], target_lengths[kept]
        random = np.random.default_rng((self.seed, epoch, block))
        batches = self.cut(source_lengths, target_lengths, random) if len(rows) else []
        return sides, [rows[batch] for batch in batches], blocks

    def blocks(self, position: Position) -> Iterator[tuple[EncodedPairs, list[Indices], list[Position]]]:
        """The batches that are left of this block, then those of each block after it, and the position after each."""
        epoch, block, first = position.epoch, position.block, position.batch
        empty = 0  # blocks in a row in which every pair is too long
        while True:
            sides, plan, blocks = self.plan(epoch, block)
            empty = 0 if plan else empty + 1
            if empty > blocks:
                raise DataError(f"every pair has a side of more than {self.max_length} tokens; raise data.max_length")
            ended = Position(epoch, block + 1) if block + 1 < blocks else Position(epoch + 1)
            after = [Position(epoch, block, number) for number in range(first + 1, len(plan))]
            if plan[first:]:
                yield *sides.read(plan[first:]), [*after, ended]
            epoch, block, first = ended.epoch, ended.block, 0

    def own(self, position: Position, *, rank: int, ranks: int) -> Iterator[tuple[EncodedPairs, Indices, Position]]:
        """Every batch of one of several processes: its ids, its pairs, and the position after those of all of them.

        Processes take batches in turn, so they take equally many whatever the corpus.
        """
        number = 0
        for sides, plan, positions in self.blocks(position):
            for rows, after in zip(plan, positions, strict=True):
                if number == rank:
                    mine = sides, rows
                number = (number + 1) % ranks
                if number == 0:
                    yield *mine, after

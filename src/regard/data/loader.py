"""Batches of examples of similar length, in training order or for a dev set."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from regard.data.batch import Batch, Collate
from regard.data.batch_sampler import BatchSampler, Position, with_added
from regard.data.batching import Indices, bucketed_batches, cut_to_budget
from regard.data.columns import Columns


class Loader(BatchSampler):
    """Batches of examples of similar length, used wherever batches are not packed."""

    def cut(self, lengths: Sequence[Indices], random: np.random.Generator) -> list[Indices]:
        return bucketed_batches(lengths, budget=self.budget, random=random)

    def batches(
        self, position: Position, *, rank: int = 0, ranks: int = 1
    ) -> Generator[tuple[Batch, Position], None, None]:
        """Yield each batch of a process from this position on, with the position after those of all processes."""
        for columns, rows, after in self.own(position, rank=rank, ranks=ranks):
            yield self.collate(columns, rows), after


def in_order(
    columns: Columns, collate: Collate, *, added: tuple[int, ...], budget: int, max_length: int
) -> list[Batch]:
    """Return all examples up to the length in batches of similar length: for a dev set, where order does not matter."""
    lengths = columns.lengths_of(np.arange(len(columns)))
    longest = np.maximum.reduce(lengths)
    lengths = with_added(lengths, added)
    order = np.lexsort(lengths)
    order = order[longest[order] <= max_length]
    return [collate(columns, rows) for rows in cut_to_budget(order, lengths, budget)]

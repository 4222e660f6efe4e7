"""Which examples make a batch: pure functions of lengths, a token budget and a random generator.

Lengths are one array per column. A budget limits the tokens of a batch in every column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


def cut_to_budget(order: Indices, lengths: Sequence[Indices], budget: int) -> list[Indices]:
    """Cut the examples, in this order, into batches of at most `budget` tokens in every column.

    An example longer than the budget makes a batch of its own.
    """
    # Tokens before each example, and after the last one.
    totals = [np.concatenate([[0], one[order].cumsum()]) for one in lengths]
    batches, start = [], 0
    while start < len(order):
        ends = [int(np.searchsorted(one, one[start] + budget, side="right")) - 1 for one in totals]
        end = max(min(ends), start + 1)
        batches.append(order[start:end])
        start = end
    return batches


def bucketed_batches(lengths: Sequence[Indices], *, budget: int, random: np.random.Generator) -> list[Indices]:
    """Return batches of examples of similar length within the budget, each example once; ties and batches shuffled."""
    shuffled = random.permutation(len(lengths[0]))
    order = shuffled[np.lexsort([one[shuffled] for one in lengths])]
    batches = cut_to_budget(order, lengths, budget)
    return [batches[i] for i in random.permutation(len(batches))]

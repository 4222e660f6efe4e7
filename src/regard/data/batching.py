"""Which sentences make a batch: pure functions of lengths, a token budget and a random generator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


def cut_to_budget(order: Indices, source_lengths: Indices, target_lengths: Indices, budget: int) -> list[Indices]:
    """The sentences in this order, cut into batches of at most `budget` tokens on either side.

    A sentence longer than the budget makes a batch of its own.
    """
    batches, start, source, target = [], 0, 0, 0
    for end, (s, t) in enumerate(zip(source_lengths[order].tolist(), target_lengths[order].tolist(), strict=True)):
        if end > start and (source + s > budget or target + t > budget):
            batches.append(order[start:end])
            start, source, target = end, 0, 0
        source, target = source + s, target + t
    return [*batches, order[start:]] if start < len(order) else batches


def bucketed_batches(
    source_lengths: Indices, target_lengths: Indices, *, budget: int, random: np.random.Generator
) -> list[Indices]:
    """All sentences once, those of like length together, in batches within the budget; ties and batches shuffled."""
    shuffled = random.permutation(len(source_lengths))
    order = shuffled[np.lexsort((source_lengths[shuffled], target_lengths[shuffled]))]
    batches = cut_to_budget(order, source_lengths, target_lengths, budget)
    return [batches[i] for i in random.permutation(len(batches))]

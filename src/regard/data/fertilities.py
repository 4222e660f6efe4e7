"""How many target tokens each source token became: for models that copy the source that often.

A small aligner in the manner of fast_align (Dyer et al. 2013) learns from the pairs themselves: word translation
probabilities by EM, places near the diagonal preferred. A target token belongs to the source token it is likeliest from.

Shapes: P pairs of a target and a source token of one sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.collate import FERTILITIES
from regard.data.columns import Column, Columns
from regard.data.ragged import Layout

DIAGONAL = 4.0  # how sharply places off the diagonal are disliked: fast_align's first guess
ITERATIONS = 5
MOST_PAIRS = 20_000_000  # of tokens to learn from
AT_A_TIME = 5_000_000  # pairs of tokens that are held
SMOOTHING = 0.01  # of a count, so that no pair that was seen is impossible


@dataclass(frozen=True)
class Aligner:
    """Word translation probabilities, by the pairs of words that were seen together."""

    seen: NDArray[np.int64]  # source id * width + target id, sorted
    probability: NDArray[np.float64]
    width: int
    max_length: int  # of a side; what is longer is left out, as it is of training

    @classmethod
    def learn(cls, pairs: Columns, *, max_length: int = 256) -> Aligner:
        """From the first pairs of a corpus, as many as are enough."""
        rows = _short_enough(pairs, max_length)
        sizes = np.cumsum(pairs["source"].lengths[rows] * pairs["target"].lengths[rows])
        width = int(pairs["target"].values.max(initial=0)) + 1
        grid = _Grid(pairs, rows[: max(1, int(np.searchsorted(sizes, MOST_PAIRS, side="right")))])
        seen, key = np.unique(grid.source * width + grid.target, return_inverse=True)
        probability = np.full(len(seen), 1.0)
        for _ in range(ITERATIONS):
            weight = grid.shares(probability[key])
            counts = np.bincount(key, weight, minlength=len(seen)) + SMOOTHING
            totals = np.bincount(seen // width, counts)
            probability = counts / totals[seen // width]
        return cls(seen, probability, width, max_length)

    def add_to(self, pairs: Columns) -> Columns:
        """Return the pairs, with the fertilities of their source tokens."""
        return pairs.with_column(FERTILITIES, self.fertilities(pairs))

    def fertilities(self, pairs: Columns) -> Column:
        """For each source token the number of target tokens that come from it; they add up to the target's length."""
        found = np.zeros(len(pairs["source"].values), dtype=np.int32)
        rows = _short_enough(pairs, self.max_length)
        part = np.cumsum(pairs["source"].lengths[rows] * pairs["target"].lengths[rows]) // AT_A_TIME
        for some in np.split(rows, np.flatnonzero(np.diff(part)) + 1):
            grid = _Grid(pairs, some)
            if not len(grid.source):
                continue
            key = np.searchsorted(self.seen, grid.source * self.width + grid.target).clip(max=len(self.seen) - 1)
            known = self.seen[key] == grid.source * self.width + grid.target
            best = grid.best(np.where(known, self.probability[key], 1e-9))
            np.add.at(found, grid.source_place[best], 1)
        return Column(found, pairs["source"].offsets)


def _short_enough(pairs: Columns, max_length: int) -> NDArray[np.int64]:
    return np.flatnonzero(np.maximum(pairs["source"].lengths, pairs["target"].lengths) <= max_length)


class _Grid:
    """Every target token of some sentences with every source token of its own, target token by target token."""

    def __init__(self, pairs: Columns, rows: NDArray[np.int64]) -> None:
        m, n = pairs["source"].lengths[rows], pairs["target"].lengths[rows]
        keep = (m > 0) & (n > 0)
        rows, m, n = rows[keep], m[keep], n[keep]
        of_target = np.repeat(np.arange(len(rows)), n)  # the sentence of each target token
        i = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
        widths = m[of_target]
        self.begins = np.cumsum(widths) - widths  # where each target token's part begins
        target = np.repeat(np.arange(len(of_target)), widths)
        j = np.arange(widths.sum()) - np.repeat(self.begins, widths)
        sentence = of_target[target]
        self.source_place = pairs["source"].offsets[rows][sentence] + j
        self.source = pairs["source"].values[self.source_place].astype(np.int64)
        self.target = pairs["target"].values[(pairs["target"].offsets[rows][of_target] + i)[target]].astype(np.int64)
        self.token = target
        self.prior = np.exp(-DIAGONAL * np.abs((i[target] + 0.5) / n[sentence] - (j + 0.5) / m[sentence]))

    def shares(self, probability: NDArray[np.float64]) -> NDArray[np.float64]:
        """How much of each target token each source token made."""
        weight = probability * self.prior
        return weight / np.add.reduceat(weight, self.begins)[self.token]

    def best(self, probability: NDArray[np.float64]) -> NDArray[np.int64]:
        """The entry of each target token with the largest share, the first of equal ones."""
        weight = probability * self.prior
        highest = weight >= np.maximum.reduceat(weight, self.begins)[self.token]
        entries = np.flatnonzero(highest)
        _, first = np.unique(self.token[entries], return_index=True)
        return entries[first]


def spread_evenly(source: Layout, target: Layout) -> Tensor:
    """Fertilities that give every source token as many target tokens as the others, where nothing better is known: [M]."""
    parts = []
    for m, n in zip(source.lengths, target.lengths, strict=True):
        edges = torch.arange(m + 1) * n // m
        parts.append(edges[1:] - edges[:-1])
    return torch.cat(parts).to(source.device)

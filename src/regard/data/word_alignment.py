"""Word alignment: which source token each target token is the translation of.

A small aligner in the manner of fast_align (Dyer et al. 2013) learns from pairs: EM estimates word translation
probabilities, and a prior prefers positions near the diagonal. Each target token is aligned to its likeliest source token.

From alignments follow fertilities, the number of target tokens that each source token is translated to (`models.nat`), the
likely translations of each token (`decoding.shortlist`), and links between words (`regard align`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import FERTILITIES
from regard.data.columns import Column, Columns
from regard.data.ragged import Layout

DIAGONAL = 4.0  # how strongly the prior prefers the diagonal: the initial value of fast_align
ITERATIONS = 5
MOST_PAIRS = 20_000_000  # pairs of a source and a target token to learn from
AT_A_TIME = 5_000_000  # such pairs in memory
SMOOTHING = 0.01  # added to each count, so that no pair that was seen has probability 0


@dataclass(frozen=True)
class Aligner:
    """Translation probabilities of the pairs of words that were seen together."""

    seen: NDArray[np.int64]  # source id * width + target id, sorted
    probability: NDArray[np.float64]
    width: int
    max_length: int  # longer pairs are left out, as they are in training

    @classmethod
    def learn(cls, pairs: Columns, *, max_length: int = 256) -> Aligner:
        """Return an aligner that learned from the first pairs of a corpus."""
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
        """Return the columns with the fertilities of their source tokens added."""
        return pairs.with_column(FERTILITIES, self.fertilities(pairs))

    def fertilities(self, pairs: Columns) -> Column:
        """Return the number of target tokens aligned to each source token; these add up to the length of the target."""
        _, places = self._align(pairs)
        counts = np.bincount(places, minlength=len(pairs["source"].values)).astype(np.int32)
        return Column(counts, pairs["source"].offsets)

    def links(self, pairs: Columns) -> list[list[tuple[int, int]]]:
        """Return for each pair its links, (source position, target position). A pair that is too long has none."""
        targets, sources = self._align(pairs)
        rows = np.searchsorted(pairs["target"].offsets, targets, side="right") - 1
        found: list[list[tuple[int, int]]] = [[] for _ in range(len(pairs["target"]))]
        positions = sources - pairs["source"].offsets[rows], targets - pairs["target"].offsets[rows]
        for row, source, target in zip(rows.tolist(), *(one.tolist() for one in positions), strict=True):
            found[row].append((source, target))
        return found

    def translations(self, most: int) -> dict[int, list[int]]:
        """Return the likeliest target tokens of each source token, at most so many, likeliest first."""
        order = np.lexsort((-self.probability, self.seen // self.width))
        source, target = np.divmod(self.seen[order], self.width)
        begins = np.flatnonzero(np.diff(source, prepend=-1))
        ends = [*begins[1:], len(source)]
        return {
            int(source[begin]): target[begin : min(end, begin + most)].tolist()
            for begin, end in zip(begins.tolist(), ends, strict=True)
        }

    def _align(self, pairs: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the places of target tokens in their column, and those of the source tokens that they are aligned to."""
        found = [(np.zeros(0, dtype=np.int64),) * 2]
        rows = _short_enough(pairs, self.max_length)
        part = np.cumsum(pairs["source"].lengths[rows] * pairs["target"].lengths[rows]) // AT_A_TIME
        for some in np.split(rows, np.flatnonzero(np.diff(part)) + 1):
            grid = _Grid(pairs, some)
            if not len(grid.source):
                continue
            key = np.searchsorted(self.seen, grid.source * self.width + grid.target).clip(max=len(self.seen) - 1)
            known = self.seen[key] == grid.source * self.width + grid.target
            best = grid.best(np.where(known, self.probability[key], 1e-9))
            found.append((grid.target_place[best], grid.source_place[best]))
        targets, sources = zip(*found, strict=True)
        return np.concatenate(targets), np.concatenate(sources)


def _short_enough(pairs: Columns, max_length: int) -> NDArray[np.int64]:
    return np.flatnonzero(np.maximum(pairs["source"].lengths, pairs["target"].lengths) <= max_length)


class _Grid:
    """All pairs of a target token and a source token of the same sentence, ordered by target token."""

    def __init__(self, pairs: Columns, rows: NDArray[np.int64]) -> None:
        m, n = pairs["source"].lengths[rows], pairs["target"].lengths[rows]
        keep = (m > 0) & (n > 0)
        rows, m, n = rows[keep], m[keep], n[keep]
        of_target = np.repeat(np.arange(len(rows)), n)  # the sentence of each target token
        i = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
        widths = m[of_target]
        self.begins = np.cumsum(widths) - widths  # the first pair of each target token
        target = np.repeat(np.arange(len(of_target)), widths)
        j = np.arange(widths.sum()) - np.repeat(self.begins, widths)
        sentence = of_target[target]
        self.source_place = pairs["source"].offsets[rows][sentence] + j
        self.source = pairs["source"].values[self.source_place].astype(np.int64)
        self.target_place = (pairs["target"].offsets[rows][of_target] + i)[target]
        self.target = pairs["target"].values[self.target_place].astype(np.int64)
        self.token = target
        self.prior = np.exp(-DIAGONAL * np.abs((i[target] + 0.5) / n[sentence] - (j + 0.5) / m[sentence]))

    def shares(self, probability: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the posterior probability of each pair, which adds up to 1 for each target token."""
        weight = probability * self.prior
        return weight / np.add.reduceat(weight, self.begins)[self.token]

    def best(self, probability: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the likeliest pair of each target token, the first of equal ones."""
        weight = probability * self.prior
        highest = weight >= np.maximum.reduceat(weight, self.begins)[self.token]
        entries = np.flatnonzero(highest)
        _, first = np.unique(self.token[entries], return_index=True)
        return entries[first]


def spread_evenly(source: Layout, target: Layout) -> Tensor:
    """Return fertilities that divide the target tokens evenly among the source tokens, if nothing better is known."""
    parts = []
    for m, n in zip(source.lengths, target.lengths, strict=True):
        edges = torch.arange(m + 1) * n // m
        parts.append(edges[1:] - edges[:-1])
    return torch.cat(parts).to(source.device)

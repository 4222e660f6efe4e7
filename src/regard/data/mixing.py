"""Several corpora as one: how many examples each gives to an epoch, and which ones.

An epoch has as many examples as all corpora together. They are shared out in proportion to weight times number of examples
of each corpus, so without weights every example is there once. A corpus is read in passes, one after the other: if it gives
m examples to an epoch, epoch e takes those from number e · m on. So the numbers of times that two examples of a corpus have
been drawn differ by one at most. The order of a pass is a permutation that follows from the seed, the corpus and the number
of the pass, so that any part of any epoch can be computed first.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from regard.data.columns import Column, Columns, Dataset, Indices, LengthTotals
from regard.data.shuffle import Shuffle

SEED = 0x6D6978  # tells the permutations of passes from those of epochs


def examples_drawn(counts: Sequence[int], weights: Sequence[float | None]) -> tuple[int, ...]:
    """Return how many examples each corpus gives to an epoch; none if its weight is None, and at least one otherwise."""
    # Weights are decimal numbers, as they are written: a weight of 0.1 is a tenth.
    exact = [Fraction(0) if weight is None else Fraction(str(weight)) for weight in weights]
    products = [weight * count for weight, count in zip(exact, counts, strict=True)]
    scale = sum(count for weight, count in zip(exact, counts, strict=True) if weight) / sum(products)
    return tuple(max(1, int(one * scale + Fraction(1, 2))) if one else 0 for one in products)


class Mixture:
    """Which examples each epoch has, where those of all corpora have numbers, one corpus after the other.

    A weight of None leaves a corpus out.
    """

    def __init__(self, counts: Sequence[int], weights: Sequence[float | None], *, seed: int) -> None:
        self.counts, self.drawn, self.seed = tuple(counts), examples_drawn(counts, weights), seed
        self.begins = np.cumsum([0, *counts])  # of each corpus, among all examples
        self.bounds = np.cumsum([0, *self.drawn])  # of each corpus, within an epoch

    def __len__(self) -> int:
        """The number of examples of an epoch."""
        return int(self.bounds[-1])

    @property
    def is_all(self) -> bool:
        """Whether each epoch has every example once."""
        return self.drawn == self.counts

    def rows(self, epoch: int, places: Indices | None = None) -> Indices:
        """Return the numbers of the examples at some places of an epoch, before it is shuffled; None: at all places."""
        places = np.arange(len(self)) if places is None else places
        rows = np.empty(len(places), dtype=np.int64)
        corpora = np.searchsorted(self.bounds, places, side="right") - 1
        for corpus in np.unique(corpora).tolist():
            here = corpora == corpus
            rows[here] = self.begins[corpus] + self._of_corpus(corpus, epoch, places[here] - self.bounds[corpus])
        return rows

    def _of_corpus(self, corpus: int, epoch: int, places: Indices) -> Indices:
        count, drawn = self.counts[corpus], self.drawn[corpus]
        passes, within = np.divmod(epoch * drawn + places, count)
        if drawn % count == 0:
            # Every epoch has complete passes, and is shuffled itself.
            return within
        found = np.empty(len(places), dtype=np.int64)
        for number in np.unique(passes).tolist():
            here = passes == number
            found[here] = Shuffle(count, (self.seed, SEED, corpus, number)).at(within[here])
        return found

    def epoch(self, dataset: Dataset, number: int) -> Dataset:
        """Return the examples of an epoch, given those of all corpora."""
        if self.is_all:
            return dataset
        if isinstance(dataset, Columns):
            return dataset.take(self.rows(number))
        assert isinstance(dataset, JoinedPairs), type(dataset)
        return DrawnPairs(dataset, self, number)


class JoinedPairs:
    """Sentence pairs of several corpora, one after the other; some of them on disk."""

    def __init__(self, parts: Sequence[Dataset]) -> None:
        self.parts, self.sized = tuple(parts), parts[0].sized
        self.begins = np.cumsum([0, *map(len, parts)])

    def __len__(self) -> int:
        return int(self.begins[-1])

    def lengths_of(self, rows: Indices) -> tuple[Indices, ...]:
        lengths = np.empty((len(self.sized), len(rows)), dtype=np.int64)
        for part, here, own in self._split(rows):
            lengths[:, here] = part.lengths_of(own)
        return tuple(lengths)

    def upto(self, max_length: int | None) -> LengthTotals:
        return _sum([part.upto(max_length) for part in self.parts])

    def read(self, batches: list[Indices]) -> tuple[Columns, list[Indices]]:
        rows = np.concatenate(batches)
        places = np.empty(len(rows), dtype=np.int64)
        found: list[Columns] = []
        count = 0
        for part, here, own in self._split(rows):
            columns, (those,) = part.read([own])
            found.append(columns.take(those))
            places[here] = count + np.arange(len(own))
            count += len(own)
        joined = {name: Column.join([one[name] for one in found]) for name in self.sized}
        return Columns(joined, self.sized), np.split(places, np.cumsum([len(batch) for batch in batches])[:-1])

    def _split(self, rows: Indices) -> list[tuple[Dataset, Indices, Indices]]:
        """Return each corpus that has some of the rows, their places, and their numbers in it."""
        owners = np.searchsorted(self.begins, rows, side="right") - 1
        places = [(number, np.flatnonzero(owners == number)) for number in np.unique(owners).tolist()]
        return [(self.parts[number], here, rows[here] - self.begins[number]) for number, here in places]


class DrawnPairs:
    """The pairs that an epoch draws from several corpora. They are read when they are needed."""

    def __init__(self, pairs: JoinedPairs, mixture: Mixture, epoch: int) -> None:
        self.pairs, self.mixture, self.number, self.sized = pairs, mixture, epoch, pairs.sized

    def __len__(self) -> int:
        return len(self.mixture)

    def lengths_of(self, rows: Indices) -> tuple[Indices, ...]:
        return self.pairs.lengths_of(self.mixture.rows(self.number, rows))

    def upto(self, max_length: int | None) -> LengthTotals:
        """Return the totals of complete passes; those of a part of a pass are taken to be in proportion."""
        parts = zip(self.pairs.parts, self.mixture.counts, self.mixture.drawn, strict=True)
        return _sum([_scaled(part.upto(max_length), drawn, count) for part, count, drawn in parts if drawn])

    def read(self, batches: list[Indices]) -> tuple[Columns, list[Indices]]:
        return self.pairs.read([self.mixture.rows(self.number, batch) for batch in batches])


def _sum(totals: Sequence[LengthTotals]) -> LengthTotals:
    tokens = tuple(map(sum, zip(*(one.tokens for one in totals), strict=True)))
    return LengthTotals(sum(one.examples for one in totals), tokens, max(one.longest for one in totals))


def _scaled(totals: LengthTotals, drawn: int, count: int) -> LengthTotals:
    tokens = tuple(one * drawn // count for one in totals.tokens)
    return LengthTotals(totals.examples * drawn // count, tokens, totals.longest)

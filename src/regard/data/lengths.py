"""How long the examples of a corpus are: small enough to keep for any corpus, and all that the shape of batches needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.batching import Indices


@dataclass(frozen=True)
class LengthTotals:
    """How many examples there are up to a length, and how many tokens they have. Added EOS tokens do not count."""

    examples: int
    tokens: tuple[int, ...]  # per column
    longest: int  # tokens of the longest sequence in any column; 0 if there are no examples

    def without(self, shorter: LengthTotals) -> LengthTotals:
        """Return the totals of the examples that are not among the shorter ones."""
        tokens = tuple(own - other for own, other in zip(self.tokens, shorter.tokens, strict=True))
        return LengthTotals(self.examples - shorter.examples, tokens, self.longest)


@dataclass(frozen=True)
class LengthTable:
    """For each length of an example's longest column: the number of examples, and their tokens in each column.

    Shapes: L lengths, C columns.
    """

    examples: Indices  # [L]
    tokens: Indices  # [C, L]

    @classmethod
    def of(cls, *lengths: Indices) -> LengthTable:
        """Return the table of examples that have these lengths in each column."""
        longest = np.maximum.reduce(lengths)
        examples = np.bincount(longest, minlength=1).astype(np.int64)
        tokens = [np.bincount(longest, weights=one, minlength=1).astype(np.int64) for one in lengths]
        return cls(examples, np.stack(tokens))

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]], *, columns: int = 2) -> LengthTable:
        """Return the table that `rows` described."""
        length, *counts = np.asarray(rows, dtype=np.int64).reshape(-1, 2 + columns).T
        table = np.zeros((1 + columns, int(length.max(initial=0)) + 1), dtype=np.int64)
        table[:, length] = counts
        return cls(table[0], table[1:])

    def rows(self) -> list[list[int]]:
        """Return [length, examples, tokens of each column ...] for each length that occurs."""
        lengths = np.flatnonzero(self.examples)
        return np.stack([lengths, self.examples[lengths], *self.tokens[:, lengths]], axis=1).tolist()

    def __add__(self, other: LengthTable) -> LengthTable:
        size = max(len(self.examples), len(other.examples))

        def padded(counts: Indices) -> Indices:
            return np.pad(counts, [*[(0, 0)] * (counts.ndim - 1), (0, size - counts.shape[-1])])

        return LengthTable(padded(self.examples) + padded(other.examples), padded(self.tokens) + padded(other.tokens))

    def upto(self, max_length: int | None = None) -> LengthTotals:
        """Return the totals of the examples of at most this length; None keeps all."""
        end = None if max_length is None else max(max_length + 1, 0)
        examples = self.examples[:end]
        longest = int(np.flatnonzero(examples).max(initial=0))
        return LengthTotals(int(examples.sum()), tuple(self.tokens[:, :end].sum(axis=1).tolist()), longest)

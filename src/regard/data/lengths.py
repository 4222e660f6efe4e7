"""How long the pairs of a corpus are: small enough to keep for any corpus, and all that the shape of batches needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class LengthTotals:
    """The pairs up to a length."""

    pairs: int
    source_tokens: int
    target_tokens: int
    longest: int  # tokens of the longest side; 0 where there are no pairs

    @property
    def tokens(self) -> int:
        """Tokens of the side that has more; EOS is not counted anywhere here."""
        return max(self.source_tokens, self.target_tokens)

    def without(self, shorter: LengthTotals) -> LengthTotals:
        """Those of these that are not among the shorter ones."""
        source, target = self.source_tokens - shorter.source_tokens, self.target_tokens - shorter.target_tokens
        return LengthTotals(self.pairs - shorter.pairs, source, target, self.longest)


@dataclass(frozen=True)
class LengthTable:
    """For each length of the longer side: how many pairs, and their tokens on either side."""

    pairs: Numbers
    source_tokens: Numbers
    target_tokens: Numbers

    @classmethod
    def of(cls, source_lengths: Numbers, target_lengths: Numbers) -> LengthTable:
        longer = np.maximum(source_lengths, target_lengths)
        weights = (None, source_lengths, target_lengths)
        return cls(*(np.bincount(longer, weights=one, minlength=1).astype(np.int64) for one in weights))

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> LengthTable:
        """What `rows` gave."""
        length, *columns = np.asarray(rows, dtype=np.int64).reshape(-1, 4).T
        table = np.zeros((3, int(length.max(initial=0)) + 1), dtype=np.int64)
        table[:, length] = columns
        return cls(*table)

    def rows(self) -> list[list[int]]:
        """[length, pairs, source tokens, target tokens] of each length that occurs."""
        lengths = np.flatnonzero(self.pairs)
        return np.stack([lengths, *(one[lengths] for one in self._columns)], axis=1).tolist()

    @property
    def _columns(self) -> tuple[Numbers, Numbers, Numbers]:
        return self.pairs, self.source_tokens, self.target_tokens

    def __add__(self, other: LengthTable) -> LengthTable:
        size = max(len(self.pairs), len(other.pairs))

        def padded(column: Numbers) -> Numbers:
            return np.pad(column, (0, size - len(column)))

        both = zip(self._columns, other._columns, strict=True)
        return LengthTable(*(padded(one) + padded(another) for one, another in both))

    def upto(self, max_length: int | None = None) -> LengthTotals:
        """What is left when pairs with a longer side are left out; None keeps all."""
        end = None if max_length is None else max(max_length + 1, 0)
        pairs, source, target = (int(column[:end].sum()) for column in self._columns)
        return LengthTotals(pairs, source, target, longest=int(np.flatnonzero(self.pairs[:end]).max(initial=0)))

"""The ids of all pairs, both sides: what batches are made from, in memory or on disk alike."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from regard.data.batching import Indices
from regard.data.column import IdColumn
from regard.data.lengths import LengthTable, LengthTotals


class Encoded(Protocol):
    """The ids of an epoch's pairs."""

    def __len__(self) -> int: ...

    def lengths_of(self, rows: Indices) -> tuple[Indices, Indices]:
        """Source and target tokens of each of these pairs."""

    def upto(self, max_length: int | None) -> LengthTotals:
        """How many pairs have no longer side, and how many tokens those have."""

    def read(self, batches: list[Indices]) -> tuple[EncodedPairs, list[Indices]]:
        """The ids of these batches in memory, and the batches as rows of those."""


@dataclass(frozen=True)
class EncodedPairs:
    """Ids in memory."""

    source: IdColumn
    target: IdColumn
    fertilities: IdColumn | None = None  # a number for each source id, for models that want them

    def __len__(self) -> int:
        return len(self.source)

    def lengths_of(self, rows: Indices) -> tuple[Indices, Indices]:
        return self.source.lengths_of(rows), self.target.lengths_of(rows)

    @cached_property
    def _table(self) -> LengthTable:
        return LengthTable.of(self.source.lengths, self.target.lengths)

    def upto(self, max_length: int | None) -> LengthTotals:
        return self._table.upto(max_length)

    def read(self, batches: list[Indices]) -> tuple[EncodedPairs, list[Indices]]:
        return self, batches

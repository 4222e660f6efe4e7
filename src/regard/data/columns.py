"""Named columns of ragged values: what batches are made from, in memory or on disk alike.

A `LengthTable` says how many examples there are of each length. It is small enough to keep for any corpus, and all that the
shapes of batches need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Column:
    """Ragged values of many examples, in one flat array: example i is values[offsets[i]:offsets[i + 1]].

    Values are ids, labels or lengths, [N], or vectors, [N, width]. A second level of lengths is a column of its own.
    """

    values: Values
    offsets: Indices

    @classmethod
    def from_lists(cls, examples: Sequence[Sequence[int]], dtype: str = "int32") -> Column:
        """Return a column of these ids, copied."""
        lengths = np.fromiter((len(example) for example in examples), dtype=np.int64, count=len(examples))
        offsets = _offsets(lengths)
        values = np.fromiter(chain.from_iterable(examples), dtype=np.dtype(dtype), count=int(offsets[-1]))
        return cls(values, offsets)

    @classmethod
    def from_arrays(cls, examples: Sequence[Values]) -> Column:
        """Return a column of these arrays, each [length] or [length, width], copied."""
        lengths = np.array([len(example) for example in examples], dtype=np.int64)
        if not examples:
            return cls(np.zeros(0, dtype=np.int32), _offsets(lengths))
        return cls(np.concatenate(list(examples)), _offsets(lengths))

    @classmethod
    def join(cls, columns: Sequence[Column]) -> Column:
        """Return the examples of all columns as one column."""
        lengths = np.concatenate([np.zeros(0, dtype=np.int64), *(column.lengths for column in columns)])
        return cls(np.concatenate([column.values for column in columns]), _offsets(lengths))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> list[Any]:
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of a column of {len(self)}")
        return self.values[self.offsets[index] : self.offsets[index + 1]].tolist()

    @property
    def lengths(self) -> Indices:
        """Number of values of each example."""
        return np.diff(self.offsets)

    def lengths_of(self, rows: Indices) -> Indices:
        """Number of values of each of these examples."""
        return self.offsets[rows + 1] - self.offsets[rows]

    def gather(self, rows: Indices, *, end: int | None = None) -> Values:
        """Return the values of these examples end to end, each followed by `end` if given. No Python loop over values."""
        lengths = self.lengths_of(rows)
        added = 0 if end is None else 1
        ends = (lengths + added).cumsum()
        count = int(ends[-1]) if len(ends) else 0
        places = np.repeat(self.offsets[rows] - (ends - lengths - added), lengths + added) + np.arange(count)
        if end is None:
            return np.asarray(self.values[places])
        # The places of the end markers are overwritten below; 0 is an index that always exists.
        places[ends - 1] = 0
        values = self.values[places] if len(self.values) else np.empty(len(places), dtype=self.values.dtype)
        values[ends - 1] = end
        return values

    def largest_of(self, rows: Indices) -> Indices:
        """Return the largest value of each of these examples; 0 if it has none."""
        lengths = self.lengths_of(rows)
        # The zero in front of each example's values stands for those of an example without any.
        values = np.zeros(int(lengths.sum()) + len(rows), dtype=np.int64)
        starts = (lengths + 1).cumsum() - (lengths + 1)
        values[np.setdiff1d(np.arange(len(values)), starts, assume_unique=True)] = self.gather(rows)
        return np.maximum.reduceat(values, starts) if len(rows) else np.zeros(0, dtype=np.int64)

    def cut(self, most: int) -> Column:
        """Return a column with the first `most` values of each example."""
        lengths = np.minimum(self.lengths, most)
        if np.array_equal(lengths, self.lengths):
            return self
        offsets = _offsets(lengths)
        places = np.repeat(self.offsets[:-1] - offsets[:-1], lengths) + np.arange(int(offsets[-1]))
        return Column(self.values[places], offsets)

    def after(self, first: Column) -> Column:
        """Return a column whose examples begin with those of another one."""
        both = Column.join([first, self])
        rows = np.arange(2 * len(self)).reshape(2, -1).T.reshape(-1)
        return Column(both.gather(rows), _offsets(first.lengths + self.lengths))

    def take(self, rows: Indices) -> Column:
        """Return a column of these examples alone, copied."""
        return Column(self.gather(rows), _offsets(self.lengths_of(rows)))


class Dataset(Protocol):
    """The encoded examples of an epoch, in memory (`Columns`) or on disk (`StoredPairs`)."""

    @property
    def sized(self) -> tuple[str, ...]:
        """The names of the columns that limit the size of a batch."""

    def __len__(self) -> int: ...

    def lengths_of(self, rows: Indices) -> tuple[Indices, ...]:
        """Lengths of these examples in each column that limits the size of a batch."""

    def upto(self, max_length: int | None) -> LengthTotals:
        """Return how many examples are at most this long in every such column, and how many tokens they have."""

    def read(self, batches: list[Indices]) -> tuple[Columns, list[Indices]]:
        """Return the columns of these batches in memory, and the batches as rows of those columns."""


@dataclass(frozen=True)
class Columns:
    """Columns of equally many examples, in memory. The lengths of the `sized` ones limit the size of a batch."""

    columns: Mapping[str, Column]
    sized: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.columns[self.sized[0]])

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def lengths_of(self, rows: Indices) -> tuple[Indices, ...]:
        return tuple(self.columns[name].lengths_of(rows) for name in self.sized)

    @cached_property
    def _table(self) -> LengthTable:
        return LengthTable.of(*(self.columns[name].lengths for name in self.sized))

    def upto(self, max_length: int | None) -> LengthTotals:
        return self._table.upto(max_length)

    def read(self, batches: list[Indices]) -> tuple[Columns, list[Indices]]:
        return self, batches

    def take(self, rows: Indices) -> Columns:
        """Return columns of these examples alone, copied; an example may be taken more than once."""
        return Columns({name: column.take(rows) for name, column in self.columns.items()}, self.sized)

    def with_rows(self, rows: Sequence[int], new: Columns) -> Columns:
        """Return these columns with other examples in some rows."""
        order = np.arange(len(self))
        order[np.asarray(rows, dtype=np.int64)] = len(self) + np.arange(len(new))
        joined = {name: Column.join([column, new[name]]).take(order) for name, column in self.columns.items()}
        return Columns(joined, self.sized)

    def with_column(self, name: str, column: Column) -> Columns:
        """Return these columns and one more."""
        return Columns({**self.columns, name: column}, self.sized)


def pair_columns(source: Column, target: Column) -> Columns:
    """Return the columns of sequence pairs, both of which limit the size of a batch."""
    return Columns({"source": source, "target": target}, ("source", "target"))


def _offsets(lengths: Indices) -> Indices:
    return np.concatenate([np.zeros(1, dtype=np.int64), lengths.cumsum()])


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

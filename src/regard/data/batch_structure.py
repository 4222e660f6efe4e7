"""What the batches of a task consist of, found by collating a few of its examples one at a time, and checked on all.

A batch has fields of values (`source`, `target`, `labels`, extras). Those with the same `Layout` object share their layout.
Each layout has a number of tokens and a number of sequences, and what an example adds to them is a `Count`: the length of
the example in one of its columns, or in two, plus a constant. So the size of a batch is known before it is collated. Two
numbers with the same count have the same size in a packed batch: where each document is a sequence of sentences, the
documents' layout has as many tokens as the sentences' layout has sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations
from typing import Literal, NamedTuple

import numpy as np
import torch

from regard.data.batch import NO_LABEL, Batch, Collate
from regard.data.columns import Column, Columns, Dataset, Indices
from regard.data.ragged import Ragged

SAMPLE = 64  # examples that are collated one at a time
CANDIDATES = 2**12  # examples of which the sample is taken
CHECKED = 2**22  # numbers that are collated together to check the structure

Kind = Literal["int", "float", "bool"]


class UnknownSize(Exception):
    """The size of a batch does not follow from the lengths of columns. The text says why, as part of a sentence."""


class ExampleLengths:
    """The lengths of some examples in any column. `known` are those in the columns that limit a batch, if already read."""

    def __init__(self, dataset: Dataset, rows: Indices, known: Sequence[Indices] | None = None) -> None:
        self.dataset, self.rows = dataset, rows
        self.known = dict(zip(dataset.sized, dataset.lengths_of(rows) if known is None else known, strict=True))

    def __getitem__(self, name: str) -> Indices:
        return self.known[name] if name in self.known else self._column(name).lengths_of(self.rows)

    def largest_value(self, name: str) -> Indices:
        """Return the largest value of each example in a column."""
        return self._column(name).largest_of(self.rows)

    def _column(self, name: str) -> Column:
        assert isinstance(self.dataset, Columns), "a store holds the columns that limit a batch, and no others"
        return self.dataset[name]


class Count(NamedTuple):
    """How much an example adds: its length in a column, or in several, and a constant."""

    columns: tuple[str, ...]
    more: int

    def of(self, lengths: ExampleLengths) -> Indices:
        """Return how much each example adds."""
        return np.sum([np.full(len(lengths.rows), self.more), *(lengths[name] for name in self.columns)], axis=0)


ONE = Count((), 1)  # per example


class LayoutStructure(NamedTuple):
    """A layout: its tokens, its sequences, and the column that lists the lengths of an example's sequences, if any."""

    tokens: Count
    sequences: Count
    lengths: str = ""


class Field(NamedTuple):
    """Values of a batch, one or a vector for each token of a layout."""

    name: str
    layout: int  # its number
    width: tuple[int, ...] = ()
    kind: Kind = "int"
    extra: bool = False

    @property
    def dummy(self) -> int:
        """The value of dummy tokens: an id that exists, NO_LABEL for labels and extras, 0 for all but integers."""
        return NO_LABEL if self.kind == "int" and (self.extra or self.name == "labels") else 0


@dataclass(frozen=True)
class BatchStructure:
    """The fields of a batch and the layouts they have. `limits` are what the token budget limits."""

    fields: tuple[Field, ...]
    layouts: tuple[LayoutStructure, ...]
    limits: tuple[Count, ...]

    @cached_property
    def counts(self) -> tuple[Count, ...]:
        """What differs between examples: the limits, then all other counts of columns."""
        found = [count for layout in self.layouts for count in (layout.tokens, layout.sequences) if count.columns]
        return tuple(dict.fromkeys([*self.limits, *found]))

    @cached_property
    def counts_sequences(self) -> tuple[bool, ...]:
        """For each of the counts, whether it counts sequences: then a batch needs room for a dummy one."""
        return tuple(any(count == layout.sequences for layout in self.layouts) for count in self.counts)

    def only(self, names: Sequence[str]) -> BatchStructure:
        """Return the structure with these fields alone."""
        return replace(self, fields=tuple(field for field in self.fields if field.name in names))

    def sizes_of(self, lengths: ExampleLengths) -> list[Indices]:
        """Return what each example adds to each of `counts`."""
        return [count.of(lengths) for count in self.counts]

    def longest_of(self, lengths: ExampleLengths) -> list[Indices]:
        """Return the tokens of the longest sequence that each example has in each layout."""
        return [
            lengths.largest_value(layout.lengths) if layout.lengths else layout.tokens.of(lengths)
            for layout in self.layouts
        ]


def fields_of(batch: Batch) -> Iterator[tuple[str, Ragged, bool]]:
    """Yield the fields of a batch by name, and whether each is an extra."""
    yield "source", batch.source, False
    if batch.target is not None:
        yield "target", batch.target, False
    yield "labels", batch.labels, False
    yield from ((name, extra, True) for name, extra in batch.extras.items())


def structure_of(dataset: Dataset, collate: Collate, *, added: tuple[int, ...], max_length: int) -> BatchStructure:
    """Return the structure of batches of examples up to a length. Raise UnknownSize if columns do not give their size."""
    columns, (rows,) = dataset.read([_sample(dataset, max_length)])
    batches = [collate(columns, rows[place : place + 1]) for place in range(len(rows))]
    names: list[list[str]] = []  # of the fields of each layout
    found: list[list[Ragged]] = []  # a field of each layout, in every batch
    numbers: dict[int, int] = {}
    fields = []
    for name, values, extra in fields_of(batches[0]):
        number = numbers.setdefault(id(values.layout), len(numbers))
        if number == len(names):
            names.append([])
            found.append([_field(batch, name) for batch in batches])
        names[number].append(name)
        fields.append(Field(name, number, tuple(values.values.shape[1:]), _kind(values), extra))
    search = _Search(columns, rows)
    layouts = [search.layout(*one) for one in zip(names, found, strict=True)]
    limits = (Count((name,), more) for name, more in zip(dataset.sized, added, strict=True))
    return BatchStructure(tuple(fields), tuple(layouts), tuple(limits))


def check_structure(structure: BatchStructure, columns: Columns, collate: Collate, *, max_length: int) -> None:
    """Raise UnknownSize if an example up to a length does not have the structure that was found with the sample."""
    rows = np.arange(len(columns))
    rows = rows[np.maximum.reduce(columns.lengths_of(rows)) <= max_length]
    numbers = sum(
        column.lengths_of(rows) * int(np.prod(column.values.shape[1:], dtype=np.int64))
        for column in columns.columns.values()
    )
    blocks = np.asarray(numbers).cumsum() // CHECKED
    for some in np.split(rows, np.flatnonzero(np.diff(blocks)) + 1):
        if len(some):
            _check(structure, collate(columns, some), ExampleLengths(columns, some))


def _check(structure: BatchStructure, batch: Batch, lengths: ExampleLengths) -> None:
    """Raise UnknownSize if a batch of some examples does not have the structure."""
    numbers: dict[int, int] = {}
    fields = tuple(
        Field(
            name,
            numbers.setdefault(id(values.layout), len(numbers)),
            tuple(values.values.shape[1:]),
            _kind(values),
            extra,
        )
        for name, values, extra in fields_of(batch)
    )
    if fields != structure.fields:
        raise UnknownSize("batches of its examples have different fields")
    for number, layout in enumerate(structure.layouts):
        names = [field.name for field in fields if field.layout == number]
        offsets = _field(batch, names[0]).layout.offsets.numpy()
        # The sequence with which each example ends.
        ends = np.minimum(layout.sequences.of(lengths).cumsum(), len(offsets) - 1)
        wrong = np.diff(offsets[ends], prepend=0) != layout.tokens.of(lengths)
        if layout.lengths:
            listed = lengths.dataset.read([lengths.rows])[0][layout.lengths].gather(lengths.rows)
            wrong |= not np.array_equal(listed, np.diff(offsets))
        wrong[-1] |= ends[-1] != len(offsets) - 1
        if wrong.any():
            raise UnknownSize(
                f"{' and '.join(names)} of example {lengths.rows[wrong.argmax()] + 1} have another number of tokens than "
                "the values of its columns, unlike those of most examples"
            )


def _sample(dataset: Dataset, max_length: int) -> Indices:
    """Return the numbers of a few examples that are short enough, from all over the dataset; the first ones if none is."""

    def short_enough(rows: Indices) -> Indices:
        return rows[np.maximum.reduce(dataset.lengths_of(rows)) <= max_length]

    spread = np.unique(np.linspace(0, len(dataset) - 1, CANDIDATES).astype(np.int64))
    if not isinstance(dataset, Columns):
        # Rows that lie together on disk.
        spread = np.arange(min(SAMPLE, len(dataset)))
    rows = short_enough(spread)
    for begin in range(0, len(dataset), CANDIDATES):
        if len(rows):
            break
        rows = short_enough(np.arange(begin, min(begin + CANDIDATES, len(dataset))))
    rows = rows if len(rows) else spread
    return rows[np.unique(np.linspace(0, len(rows) - 1, SAMPLE).astype(np.int64))]


def _field(batch: Batch, name: str) -> Ragged:
    return next(values for other, values, _ in fields_of(batch) if other == name)


def _kind(field: Ragged) -> Kind:
    if field.values.is_floating_point():
        return "float"
    return "bool" if field.values.dtype == torch.bool else "int"


class _Search:
    """Finds the count of a number, given the number for each example of the sample."""

    def __init__(self, columns: Columns, rows: Indices) -> None:
        self.columns, self.rows = columns, rows
        self.others: dict[tuple[int, ...], Count] = {}  # counts of columns that do not limit a batch, by their numbers

    def layout(self, names: list[str], fields: list[Ragged]) -> LayoutStructure:
        totals = np.array([field.layout.total for field in fields])
        sequences = np.array([field.layout.num_sentences for field in fields])
        what = f"{' and '.join(names)} of an example"
        if (sequences == 1).all():
            return LayoutStructure(self.count(totals, names, f"the tokens of {what}"), ONE)
        count = self.count(sequences, names, f"the sequences of {what}")
        listed = self.lists([field.layout.lengths for field in fields])
        return LayoutStructure(self.count(totals, names, f"the tokens of {what}"), count, listed)

    def count(self, numbers: Indices, names: list[str], what: str) -> Count:
        """Return the count that gives these numbers: of a column with the name of a field, if there is one."""
        sized = self.columns.sized
        others = [name for name in self.columns.columns if name not in sized]
        for name in sized:
            if name in names and (found := self._match(numbers, (name,))):
                return found
        if (numbers == 1).all():
            return ONE
        if tuple(numbers) in self.others:
            return self.others[tuple(numbers)]
        by_name = sorted((*sized, *others), key=lambda name: name not in names)
        for columns in chain(((name,) for name in by_name), [()], combinations(by_name, 2)):
            if found := self._match(numbers, columns):
                return self.others.setdefault(tuple(numbers), found)
        raise UnknownSize(f"{what} are not as many as the values of its columns")

    def _match(self, numbers: Indices, columns: tuple[str, ...]) -> Count | None:
        more = numbers - sum(self.columns[name].lengths_of(self.rows) for name in columns)
        return Count(columns, int(more[0])) if (more == more[0]).all() else None

    def lists(self, lengths: list[tuple[int, ...]]) -> str:
        """Return the name of the column whose values are these lengths; empty if there is none."""
        for name, column in self.columns.columns.items():
            integers = column.values.ndim == 1 and column.values.dtype.kind in "iu"
            if integers and all(tuple(column[row]) == one for row, one in zip(self.rows, lengths, strict=True)):
                return name
        return ""

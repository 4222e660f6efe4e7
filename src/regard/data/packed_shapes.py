"""The static shapes of packed batches: one for all, or a few for examples of similar length.

A shape gives a size to every count of a batch (`data.batch_structure`). The columns that limit a batch get the token budget,
or less in proportion to their tokens; everything else has room for a few more examples than an average batch holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, takewhile

import numpy as np

from regard.data.batch_sampler import num_blocks
from regard.data.batch_structure import ONE, BatchStructure, Count, ExampleLengths, Field, LayoutStructure
from regard.data.columns import Columns, Dataset, Indices
from regard.errors import ConfigError
from regard.messages import counted

# Batches of sentences of similar length, per block of examples, that are worth a shape of their own.
ENOUGH = 4
# Room for sentences, as a multiple of those of an average batch: with all lengths, and with similar ones.
SPARE, SPARE_SIMILAR = 1.25, 1.1
FAR_SHORTER = 0.75  # of the longest sequence of another column
ALIGNED = 4  # numbers: vectors of floats begin at a multiple of 16 bytes


@dataclass(frozen=True)
class PackedShape:
    """The shape that all batches of a run share, or all of those with examples of similar length."""

    structure: BatchStructure
    sizes: tuple[int, ...]  # of each of the structure's counts
    examples: int  # the dummy one and empty ones among them
    longest: tuple[int, ...]  # tokens of a sequence, for each layout

    def size(self, count: Count) -> int:
        """Return how much of this a batch has, dummies included."""
        return self.sizes[self.structure.counts.index(count)] if count.columns else count.more * self.examples

    def tokens(self, name: str) -> int:
        """Return the number of tokens of a field."""
        field = next(field for field in self.structure.fields if field.name == name)
        return self.size(self.structure.layouts[field.layout].tokens)

    @cached_property
    def limits(self) -> tuple[int, ...]:
        """Most of each of the structure's counts that examples may add up to."""
        return tuple(size - dummy for size, dummy in zip(self.sizes, self.structure.counts_sequences, strict=True))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each layout: that of its first field."""
        fields = self.structure.fields
        return tuple(next(f.name for f in fields if f.layout == one) for one in range(len(self.structure.layouts)))

    @cached_property
    def fields(self) -> dict[str, slice]:
        """Where each field lies in a row of numbers, by name; the number of labels that count is last."""
        layouts, first = self.structure.layouts, self.names
        sizes: dict[str, int] = {}
        floats = {field.name for field in self.structure.fields if field.kind == "float"}

        def add(field: Field) -> None:
            sizes[field.name] = self.size(layouts[field.layout].tokens) * int(np.prod(field.width, dtype=np.int64))

        for number, layout in enumerate(layouts):
            own = [field for field in self.structure.fields if field.layout == number]
            add(own[0])
            sizes |= {f"{own[0].name} {part}": self.size(layout.tokens) for part in ("positions", "sentences")}
            for field in own[1:]:
                if not field.extra:
                    add(field)
        # Behind most fields of a multiple of 64 numbers, so that those stay aligned.
        sizes |= {f"{name} offsets": self.size(one.sequences) + 1 for name, one in zip(first, layouts, strict=True)}
        for field in self.structure.fields:
            if field.extra and field.name not in first:
                add(field)
        fields, begin = {}, 0
        for name, size in {**sizes, "num_tokens": 1}.items():
            begin = -(-begin // ALIGNED) * ALIGNED if name in floats else begin
            fields[name] = slice(begin, begin + size)
            begin += size
        return fields

    @property
    def numbers(self) -> int:
        """Length of a row."""
        return self.fields["num_tokens"].stop

    def takes(self, sizes: list[Indices], longest: list[Indices]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return for each example whether a batch of this shape can hold it."""
        most = [*zip(sizes, self.limits, strict=True), *zip(longest, self.longest, strict=True)]
        return np.logical_and.reduce([one <= limit for one, limit in most])

    def holds(self, sizes: list[Indices], longest: list[Indices]) -> bool:
        """Return whether a batch of all these examples has this shape."""
        fits = all(one.sum() <= limit for one, limit in zip(sizes, self.limits, strict=True))
        return fits and len(sizes[0]) < self.examples and bool(self.takes(sizes, longest).all())

    def times(self, factor: int) -> PackedShape:
        """Return a shape with room for this many times as much."""
        return replace(self, sizes=tuple(factor * size for size in self.sizes), examples=factor * self.examples)


def pair_shape(source_tokens: int, target_tokens: int, sentences: int, longest: int) -> PackedShape:
    """Return the shape of sequence pairs with these sizes."""
    source, target = Count(("source",), 1), Count(("target",), 1)
    fields = Field("source", 0), Field("target", 1), Field("labels", 1)
    layouts = LayoutStructure(source, ONE), LayoutStructure(target, ONE)
    structure = BatchStructure(fields, layouts, (source, target))
    return PackedShape(structure, (source_tokens, target_tokens), sentences, (longest, longest))


def one_shape(dataset: Dataset, structure: BatchStructure, max_length: int, budget: int) -> list[PackedShape]:
    """Return one shape for all examples up to a length, with `budget` tokens in the largest column."""
    return [shape_for(totals_between(dataset, structure, None, max_length), structure, budget)]


def shapes_by_length(dataset: Dataset, structure: BatchStructure, max_length: int, budget: int) -> list[PackedShape]:
    """Return a few shapes for examples of similar length, the shortest first; each serves a few batches of every block."""
    enough = ENOUGH * budget * num_blocks(len(dataset))
    longest = dataset.upto(max_length).longest
    ends = [longest]
    for end in reversed(round_lengths(longest)):
        shorter = dataset.upto(end)
        between = dataset.upto(ends[0]).without(shorter)
        if min(max(shorter.tokens), max(between.tokens)) >= enough:
            ends.insert(0, end)
    shapes: list[PackedShape] = []
    for below, upto in pairwise([None, *ends]):
        assert upto is not None
        shape = shape_for(totals_between(dataset, structure, below, upto), structure, budget, spare=SPARE_SIMILAR)
        if shapes:
            # An example that fits a shape also fits the later ones.
            longest_yet = tuple(map(max, zip(shape.longest, shapes[-1].longest, strict=True)))
            shape = replace(shape, longest=longest_yet)
        shapes.append(shape)
    return shapes


def round_lengths(longest: int) -> list[int]:
    """Return 8, 10, 12, 14, 16, 20, 24, 28, 32, 40 and so on, below `longest`."""
    lengths = (2**octave + quarter * 2 ** (octave - 2) for octave in range(3, 32) for quarter in range(4))
    return list(takewhile(lambda length: length < longest, lengths))


@dataclass(frozen=True)
class Totals:
    """What some examples add up to."""

    examples: int
    sums: tuple[int, ...]  # of each of the structure's counts
    largest: tuple[int, ...]  # most that one example adds to each
    longest: tuple[int, ...]  # tokens of a sequence, for each layout


def totals_between(dataset: Dataset, structure: BatchStructure, below: int | None, upto: int) -> Totals:
    """Return the totals of the examples longer than `below` and not longer than `upto`."""
    totals = dataset.upto(upto)
    totals = totals if below is None else totals.without(dataset.upto(below))
    limits = structure.limits
    sums = [tokens + count.more * totals.examples for count, tokens in zip(limits, totals.tokens, strict=True)]
    longest = totals.longest + max(count.more for count in limits)
    if not isinstance(dataset, Columns):
        # Pairs on disk, of which a table of lengths is known.
        return Totals(totals.examples, tuple(sums), (longest,) * len(sums), (longest,) * len(structure.layouts))
    rows = np.arange(len(dataset))
    length = np.maximum.reduce(dataset.lengths_of(rows))
    lengths = ExampleLengths(dataset, rows[(length <= upto) & (length > (-1 if below is None else below))])
    found = [count.of(lengths) for count in structure.counts[len(limits) :]]
    of_layouts = (
        _common_or_own(longest, int(one.max())) if layout.tokens in limits and not layout.lengths else int(one.max())
        for layout, one in zip(structure.layouts, structure.longest_of(lengths), strict=True)
    )
    all_sums = (*sums, *(int(one.sum()) for one in found))
    largest = ((longest,) * len(limits)) + tuple(int(one.max()) for one in found)
    return Totals(totals.examples, all_sums, largest, tuple(of_layouts))


def _common_or_own(longest: int, own: int) -> int:
    """Return the longest sequence of all columns, or of this one, if it is far shorter: models that pad take fewer steps.

    The latter with some room, because later epochs may have longer ones.
    """
    with_room = int(SPARE * own) + 1
    return with_room if with_room <= FAR_SHORTER * longest else longest


def shape_for(totals: Totals, structure: BatchStructure, budget: int, *, spare: float = SPARE) -> PackedShape:
    """Return the shape for these examples, with `budget` tokens in the largest column, EOS included."""
    limited = len(structure.limits)
    longest = max(totals.largest[:limited])
    if longest > budget:
        raise ConfigError(
            f"train.tokens is {budget} but a sentence has {counted(longest, 'token')}; raise it, or lower data.max_length"
        )
    last = max(totals.sums[limited - 1], 1)
    ratios = [max(one, 1) / last for one in totals.sums[:limited]]
    sizes = [max(_in_64s(round(budget * ratio / max(ratios))), longest) for ratio in ratios]
    average = last / totals.examples  # tokens of an example
    for count, total, largest in list(zip(structure.counts, totals.sums, totals.largest, strict=True))[limited:]:
        size = max(int(spare * sizes[limited - 1] / average * total / totals.examples), largest) + 9
        # Tokens in multiples of 64, for aligned fields.
        sizes.append(_in_64s(size) if any(count == layout.tokens for layout in structure.layouts) else size)
    examples = int(spare * sizes[limited - 1] / average) + 9
    return PackedShape(structure, tuple(sizes), examples, totals.longest)


def _in_64s(tokens: int) -> int:
    return -(-tokens // 64) * 64

"""The static shapes of packed batches: one for all, or a few for sentences of similar length.

Packed batches hold sequence pairs: a source, and a target with one label per token.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile

from regard.data.batch_sampler import num_blocks
from regard.data.columns import Dataset, Indices, LengthTotals
from regard.errors import ConfigError

# Batches of sentences of similar length, per block of examples, that are worth a shape of their own.
ENOUGH = 4
# Room for sentences, as a multiple of those of an average batch: with all lengths, and with similar ones.
SPARE, SPARE_SIMILAR = 1.25, 1.1


@dataclass(frozen=True)
class PackedShape:
    """The shape that all batches of a run share, or all of those with sentences of similar length."""

    source_tokens: int  # S
    target_tokens: int  # T
    sentences: int  # B, the dummy one and empty ones among them
    longest: int  # tokens of a sentence, EOS included
    extras: tuple[str, ...] = ()  # values that each source token has besides its id

    @cached_property
    def fields(self) -> dict[str, slice]:
        """Where each field lies in a row of numbers, by name; the number of labels that count is last."""
        S, T, B = self.source_tokens, self.target_tokens, self.sentences
        sizes = {"source": S, "source positions": S, "source sentences": S}
        sizes |= {"target": T, "target positions": T, "target sentences": T, "labels": T}
        # Behind all fields of a multiple of 64 numbers, so that those stay aligned.
        sizes |= {"source offsets": B + 1, "target offsets": B + 1}
        sizes |= {**dict.fromkeys(self.extras, S), "num_tokens": 1}
        fields, begin = {}, 0
        for name, size in sizes.items():
            fields[name] = slice(begin, begin + size)
            begin += size
        return fields

    @property
    def numbers(self) -> int:
        """Length of a row."""
        return self.fields["num_tokens"].stop

    def holds(self, source_lengths: Indices, target_lengths: Indices) -> bool:
        """Whether a batch of sentences of these lengths, EOS included, has this shape."""
        longest = max(source_lengths.max(), target_lengths.max())
        room = self.source_tokens - source_lengths.sum(), self.target_tokens - target_lengths.sum()
        return bool(longest <= self.longest and min(room) >= 0 and len(source_lengths) < self.sentences)


def one_shape(pairs: Dataset, max_length: int, budget: int, *, extras: tuple[str, ...] = ()) -> list[PackedShape]:
    """Return one shape for all pairs up to a length, with `budget` tokens on the larger side."""
    return [shape_for(pairs.upto(max_length), budget, extras=extras)]


def shapes_by_length(
    pairs: Dataset, max_length: int, budget: int, *, extras: tuple[str, ...] = ()
) -> list[PackedShape]:
    """Return a few shapes for pairs of similar length, the shortest first; each serves a few batches of every block."""
    enough = ENOUGH * budget * num_blocks(len(pairs))
    longest = pairs.upto(max_length).longest
    ends = [longest]
    for end in reversed(round_lengths(longest)):
        shorter = pairs.upto(end)
        between = pairs.upto(ends[0]).without(shorter)
        if min(max(shorter.tokens), max(between.tokens)) >= enough:
            ends.insert(0, end)
    totals = [LengthTotals(0, (0, 0), 0), *map(pairs.upto, ends)]
    return [
        shape_for(upto.without(below), budget, spare=SPARE_SIMILAR, extras=extras) for below, upto in pairwise(totals)
    ]


def round_lengths(longest: int) -> list[int]:
    """Return 8, 10, 12, 14, 16, 20, 24, 28, 32, 40 and so on, below `longest`."""
    lengths = (2**octave + quarter * 2 ** (octave - 2) for octave in range(3, 32) for quarter in range(4))
    return list(takewhile(lambda length: length < longest, lengths))


def shape_for(totals: LengthTotals, budget: int, *, spare: float = SPARE, extras: tuple[str, ...] = ()) -> PackedShape:
    """Return the shape for these pairs, with `budget` tokens on the larger side, EOS included."""
    (source, target), longest = (tokens + totals.examples for tokens in totals.tokens), totals.longest + 1
    if longest > budget:
        raise ConfigError(
            f"train.tokens is {budget} but a sentence has {longest} tokens; raise it, or lower data.max_length"
        )
    sentence, ratio = target / totals.examples, source / target
    source, target = (budget, round(budget / ratio)) if ratio > 1 else (round(budget * ratio), budget)
    source, target = (max(-(-tokens // 64) * 64, longest) for tokens in (source, target))
    return PackedShape(source, target, int(spare * target / sentence) + 9, longest, extras)

"""The shapes that packed batches have: one for all, or a few for sentences of like length."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, takewhile

from regard.data.batch_sampler import num_blocks
from regard.data.batching import Indices
from regard.data.columns import Encoded
from regard.data.lengths import LengthTotals
from regard.errors import ConfigError

ENOUGH = 4  # batches of sentences of like length, in what is shuffled at a time, that are worth a shape of their own
SPARE, SPARE_ALIKE = 1.25, 1.1  # times the sentences of an average batch: the room there is


@dataclass(frozen=True)
class Shape:
    """What all batches of a run have in common, or all of those with sentences of like length."""

    source_tokens: int  # S
    target_tokens: int  # T
    sentences: int  # B
    longest: int  # tokens of a sentence, EOS among them
    fertilities: bool = False  # whether each source token has one

    @property
    def parts(self) -> list[int]:
        """Lengths of a row's parts: source ids, positions, sentences; target ids, labels, positions, sentences; ..."""
        S, T = self.source_tokens, self.target_tokens
        told = S if self.fertilities else 0
        # ... both offsets, fertilities, real target tokens
        return [S, S, S, T, T, T, T, self.sentences + 1, self.sentences + 1, told, 1]

    @property
    def numbers(self) -> int:
        """Length of a row."""
        return sum(self.parts)

    def holds(self, source_lengths: Indices, target_lengths: Indices) -> bool:
        """Whether a batch of these sentences has this shape (EOS counted in)."""
        longest = max(source_lengths.max(), target_lengths.max())
        room = self.source_tokens - source_lengths.sum(), self.target_tokens - target_lengths.sum()
        return bool(longest <= self.longest and min(room) >= 0 and len(source_lengths) < self.sentences)


def one_shape(sides: Encoded, max_length: int, budget: int, *, fertilities: bool = False) -> list[Shape]:
    """A shape for all pairs up to a length, with `budget` tokens on the larger side."""
    return [shape_for(sides.upto(max_length), budget, fertilities=fertilities)]


def shapes_by_length(sides: Encoded, max_length: int, budget: int, *, fertilities: bool = False) -> list[Shape]:
    """A few shapes for pairs of like length, the shortest first; each is for at least a few batches of every block."""
    enough = ENOUGH * budget * num_blocks(len(sides))
    longest = sides.upto(max_length).longest
    ends = [longest]
    for end in reversed(round_lengths(longest)):
        shorter = sides.upto(end)
        between = sides.upto(ends[0]).without(shorter)
        if min(shorter.tokens, between.tokens) >= enough:
            ends.insert(0, end)
    kept = [LengthTotals(0, 0, 0, 0), *map(sides.upto, ends)]
    return [
        shape_for(upto.without(below), budget, spare=SPARE_ALIKE, fertilities=fertilities)
        for below, upto in pairwise(kept)
    ]


def round_lengths(longest: int) -> list[int]:
    """8, 10, 12, 14, 16, 20, 24, 28, 32, 40 and so on, below `longest`."""
    lengths = (2**octave + quarter * 2 ** (octave - 2) for octave in range(3, 32) for quarter in range(4))
    return list(takewhile(lambda length: length < longest, lengths))


def shape_for(kept: LengthTotals, budget: int, *, spare: float = SPARE, fertilities: bool = False) -> Shape:
    """The shape for these pairs, with `budget` tokens on the larger side, EOS counted in."""
    source, target, longest = kept.source_tokens + kept.pairs, kept.target_tokens + kept.pairs, kept.longest + 1
    if longest > budget:
        raise ConfigError(
            f"train.tokens is {budget} but a sentence has {longest} tokens; raise it, or lower data.max_length"
        )
    sentence, ratio = target / kept.pairs, source / target
    source, target = (budget, round(budget / ratio)) if ratio > 1 else (round(budget * ratio), budget)
    source, target = (max(-(-tokens // 64) * 64, longest) for tokens in (source, target))
    return Shape(source, target, int(spare * target / sentence) + 9, longest, fertilities)

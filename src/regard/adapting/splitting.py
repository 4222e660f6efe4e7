"""Which pairs are trained on, which choose the model (dev), and which test it.

Pairs that have the source or the target in common, apart from case and spaces, are always in the same part, so that nothing
is tested that was trained on. A part is filled with groups of such pairs, in random order.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from regard.errors import DataError
from regard.messages import counted
from regard.text.pair import Pair

MIN_PAIRS = 50  # distinct ones
SHARE, LEAST_TESTED, LEAST_DEV, MOST = 0.1, 20, 10, 500  # of the pairs, to test on and to choose by


class TextSplit(NamedTuple):
    """The parts of a corpus, and what was left out of them."""

    train: list[Pair]
    dev: list[Pair]
    test: list[Pair]
    duplicates: int = 0  # pairs that were there before
    leaks: int = 0  # pairs whose source or target is in a test set that was given


def part_size(total: int, *, least: int, most: int) -> int:
    """Return how many of all pairs are kept to test on, or to choose by."""
    return min(max(round(SHARE * total), least), most)


def text_key(text: str) -> str:
    """Return the text without differences in case and spaces."""
    return " ".join(text.casefold().split())


def without_duplicates(pairs: Iterable[Pair]) -> list[Pair]:
    """Return the first of each set of pairs that have the same two texts."""
    return list({(text_key(pair.source), text_key(pair.target)): pair for pair in reversed(list(pairs))}.values())[::-1]


def without_texts_of(pairs: Iterable[Pair], *others: Iterable[Pair]) -> list[Pair]:
    """Return the pairs that share neither source nor target with a pair of the other sets."""
    every = [pair for other in others for pair in other]
    sources, targets = {text_key(pair.source) for pair in every}, {text_key(pair.target) for pair in every}
    return [pair for pair in pairs if text_key(pair.source) not in sources and text_key(pair.target) not in targets]


def split_pairs(
    pairs: Sequence[Pair], *, seed: int, test: Sequence[Pair] = (), most: int = MOST, origin: str = "the text"
) -> TextSplit:
    """Return the parts of a corpus, at most `most` pairs to test on, and as many to choose by.

    With a `test` set of its own, it is the last part, and nothing is taken for it.
    """
    distinct = without_duplicates(pairs)
    kept = without_texts_of(distinct, test)
    duplicates, leaks = len(pairs) - len(distinct), len(distinct) - len(kept)
    if len(kept) < MIN_PAIRS:
        left_out = (
            f" without duplicates and pairs of the test set ({len(pairs):,} with them)" if duplicates or leaks else ""
        )
        raise DataError(f"{origin} has {counted(len(kept), 'pair')}{left_out}; adapting needs at least {MIN_PAIRS}")
    groups = related_groups(kept)
    random.Random(seed).shuffle(groups)
    tested = list(test) or _take(groups, part_size(len(kept), least=LEAST_TESTED, most=most), origin)
    dev = _take(groups, part_size(len(kept), least=LEAST_DEV, most=most), origin)
    return TextSplit([pair for group in groups for pair in group], dev, tested, duplicates, leaks)


def related_groups(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Return the pairs in groups: two pairs with the same source or the same target are in the same group."""
    parent = list(range(len(pairs)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    first: dict[tuple[str, str], int] = {}
    for number, pair in enumerate(pairs):
        for side in (("source", text_key(pair.source)), ("target", text_key(pair.target))):
            parent[root(number)] = root(first.setdefault(side, number))
    groups: dict[int, list[Pair]] = {}
    for number, pair in enumerate(pairs):
        groups.setdefault(root(number), []).append(pair)
    return list(groups.values())


def _take(groups: list[list[Pair]], count: int, origin: str) -> list[Pair]:
    """Remove groups of together `count` pairs from the list, and return their pairs."""
    taken: list[Pair] = []
    rest: list[list[Pair]] = []
    for group in groups:
        if len(taken) + len(group) <= count:
            taken += group
        else:
            rest.append(group)
    if len(taken) < count or not rest:
        raise DataError(
            f"nearly all pairs of {origin} share their source or their target with others, so that no part of "
            f"{counted(count, 'pair')} can be kept for testing; give text that is more varied"
        )
    groups[:] = rest
    return taken

"""The pairs that tokenizers are learnt from: a bounded number, the same ones every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from regard.text.corpus import Pair

SAMPLE_PAIRS = 1_000_000
SAMPLE_CHARS = 200_000_000  # both sides; bounds the memory where sentences are long


def spread_sample(pairs: Iterator[Pair], look: Callable[[int], None] = lambda count: None) -> tuple[list[Pair], int]:
    """Pairs spread evenly over all of them, and the number of all; `look` is called with how many have passed.

    Every pair is kept until there are too many; then every other one goes, and from there on only half as many come in.
    """
    kept: list[Pair] = []
    count, every, chars = 0, 1, 0
    for count, pair in enumerate(pairs, start=1):
        if count % every:
            continue
        kept.append(pair)
        chars += len(pair.source) + len(pair.target)
        while len(kept) > 1 and (len(kept) > SAMPLE_PAIRS or chars > SAMPLE_CHARS):
            kept, every = kept[1::2], every * 2
            chars = sum(len(pair.source) + len(pair.target) for pair in kept)
        look(count)
    return kept, count


def first_sample(pairs: Iterator[Pair]) -> tuple[list[Pair], Iterator[Pair]]:
    """The first pairs of a stream that can be read only once, and the stream with them in front again."""
    kept: list[Pair] = []
    chars = 0
    for pair in pairs:
        kept.append(pair)
        chars += len(pair.source) + len(pair.target)
        if len(kept) >= SAMPLE_PAIRS or chars > SAMPLE_CHARS:
            break
    return kept, chain(kept, pairs)

"""Random draws for generated corpora.

Python guarantees the same numbers in later versions for `random()` only, so nothing else of its generators is used.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def below(generator: random.Random, count: int) -> int:
    """Return a number from 0 to `count` - 1."""
    return int(generator.random() * count)


def choose(generator: random.Random, some: Sequence[T]) -> T:
    """Return one of some things."""
    return some[below(generator, len(some))]


def shuffled(generator: random.Random, some: Iterable[T]) -> list[T]:
    """Return the things in random order (Fisher and Yates 1938)."""
    left = list(some)
    for last in range(len(left) - 1, 0, -1):
        other = below(generator, last + 1)
        left[last], left[other] = left[other], left[last]
    return left

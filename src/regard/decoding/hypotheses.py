"""What search takes and returns, and how hypotheses of different lengths are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from regard.config import SearchOptions

__all__ = ["COMPACT_BELOW", "Check", "Hypothesis", "SearchOptions", "SearchResults", "length_penalty", "never_stop"]

COMPACT_BELOW = 0.75  # finished sentences are dropped once at most this share of a batch is still being searched


class Hypothesis(NamedTuple):
    """Output ids without BOS and EOS, and their score: log-probability divided by the length penalty."""

    ids: list[int]
    score: float


# Called between the steps of a search. Raises `Cancelled` or `DeadlineExceeded` to stop it.
Check = Callable[[], None]


def never_stop() -> None:
    """Let the search run to its end."""


SearchResults = list[tuple[int, list[Hypothesis]]]  # the index of a source, and its best hypotheses


def length_penalty(length: int, alpha: float) -> float:
    """Return ((5 + length) / 6)^alpha (Wu et al. 2016, equation 14), where the length includes EOS."""
    return float(((5 + length) / 6) ** alpha)

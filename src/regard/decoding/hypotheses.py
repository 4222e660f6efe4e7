"""What search returns, what it may be asked for, and how hypotheses of different lengths are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from regard.config import SearchOptions

__all__ = ["Check", "Hypothesis", "SearchOptions", "SearchResults", "length_penalty", "never_stop"]


class Hypothesis(NamedTuple):
    """Tokens without BOS and EOS, and their score: log-probability over the length penalty, larger is better."""

    ids: list[int]
    score: float


# Called between the steps of a search; raises `Cancelled` or `DeadlineExceeded` to stop it.
Check = Callable[[], None]


def never_stop() -> None:
    """The check of a search that runs to its end."""


SearchResults = list[tuple[int, list[Hypothesis]]]  # sentences by their numbers, and the best hypotheses of each


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6)^alpha (Wu et al. 2016, equation 14); EOS counts."""
    return float(((5 + length) / 6) ** alpha)

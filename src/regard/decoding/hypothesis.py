"""What all kinds of search share: hypotheses, the length penalty, and how a search is stopped."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from regard.config import SearchOptions
from regard.errors import DecodeError

IMPOSSIBLE = float("-inf")


class Hypothesis(NamedTuple):
    """Output ids without BOS and EOS, and their score: log-probability divided by the length penalty."""

    ids: list[int]
    score: float
    token_scores: list[float] | None = None  # log-probability of each token, and of EOS if there was room for it
    calibrated: list[float] | None = None  # the same under the temperature of a calibrated run, if confidence is wanted


class TokenScores(NamedTuple):
    """Log-probabilities of the tokens of an output."""

    scores: list[float]
    calibrated: list[float] | None = None  # under a temperature, if one was given


# Called between the steps of a search. Raises `Cancelled` or `DeadlineExceeded` to stop it.
Check = Callable[[], None]


def never_stop() -> None:
    """Let the search run to its end."""


SearchResults = list[tuple[int, list[Hypothesis]]]  # the index of a source, and its best hypotheses


def length_penalty(length: int, options: SearchOptions) -> float:
    """Return what divides the log-probability of so many tokens, EOS included.

    "wu" is ((5 + length) / 6)^alpha (Wu et al. 2016, equation 14); "power" is length^alpha.
    """
    base = length if options.length_penalty_kind == "power" else (5 + length) / 6
    return float(base**options.length_penalty)


def refuse_not_finite(results: SearchResults) -> SearchResults:
    """Return the results. Raise DecodeError if a sentence has none, or one without a score."""
    if any(not best or math.isnan(best[0].score) for _, best in results):
        raise DecodeError(
            "the model's scores are not finite; its weights are damaged, it has diverged, or the options allow no output"
        )
    return results

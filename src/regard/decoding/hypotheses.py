"""What search returns, what it may be asked for, and how hypotheses of different lengths are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from regard.errors import DecodeError

MAX_EXTRA = 10_000  # output tokens beyond the source's


class Hypothesis(NamedTuple):
    """Tokens without BOS and EOS, and their score: log-probability over the length penalty, larger is better."""

    ids: list[int]
    score: float


# Called between the steps of a search; raises `Cancelled` or `DeadlineExceeded` to stop it.
Check = Callable[[], None]


def never_stop() -> None:
    """The check of a search that runs to its end."""


SearchResults = list[tuple[int, list[Hypothesis]]]  # sentences by their numbers, and the best hypotheses of each


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How to search."""

    beam: int = 4
    nbest: int = 1
    length_penalty: float = 0.6  # alpha of Wu et al. 2016; 0: none
    max_extra: int = 50  # most output tokens: those of the source, and these
    min_length: int = 0  # fewest output tokens, EOS not counted
    max_length: int | None = None  # most output tokens whatever the source
    iterations: int = 10  # times that a model which writes all tokens at once goes over them, if it is one that does
    scores: bool = True  # False lets greedy search leave them out, which saves it a pass over the vocabulary

    def __post_init__(self) -> None:
        if not 1 <= self.beam <= 1000:
            raise DecodeError(f"beam is {self.beam}; it must be between 1 and 1000")
        if not 1 <= self.nbest <= self.beam:
            raise DecodeError(
                f"{self.nbest} best were asked of a beam of {self.beam}; ask for fewer, or for a wider beam"
            )
        if not 1 <= self.iterations <= 1000:
            raise DecodeError(f"iterations are {self.iterations}; they must be between 1 and 1000")
        if not 0 <= self.length_penalty <= 100:
            raise DecodeError(f"length_penalty is {self.length_penalty}; it must be between 0 and 100")
        if not 0 <= self.max_extra <= MAX_EXTRA:
            raise DecodeError(f"max_extra is {self.max_extra}; it must be between 0 and {MAX_EXTRA:,}")
        if self.min_length < 0 or (self.max_length is not None and self.max_length < 1):
            raise DecodeError("min_length must be 0 or more, and max_length 1 or more")

    def limit(self, source_length: int) -> int:
        """Most output tokens for a source of so many (EOS not counted)."""
        limit = source_length + self.max_extra
        return max(1, limit if self.max_length is None else min(limit, self.max_length))


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6)^alpha (Wu et al. 2016, equation 14); EOS counts."""
    return float(((5 + length) / 6) ** alpha)

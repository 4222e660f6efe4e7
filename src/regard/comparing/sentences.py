"""The sentences whose outputs by two systems differ most, by chrF."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.metrics.corpus_metrics import CorpusMetric, Statistics


@dataclass(frozen=True)
class ChangedSentence:
    """A test sentence with the outputs of the baseline and of another system, and how much higher the latter's chrF is."""

    line: int  # in the test set, from 1
    source: str | None
    references: list[str]
    before: str
    after: str
    change: float


@dataclass(frozen=True)
class Changes:
    """What a system outputs otherwise than the baseline."""

    improved: list[ChangedSentence]  # the most improved first
    worsened: list[ChangedSentence]  # the most worsened first
    equal: int  # outputs that are the same


def find_changes(
    chrf: CorpusMetric,
    before: tuple[Sequence[str], Statistics],
    after: tuple[Sequence[str], Statistics],
    references: Sequence[Sequence[str]],
    sources: Sequence[str] | None,
    *,
    most: int,
) -> Changes:
    """Return the sentences that changed most, at most `most` in each direction.

    `before` and `after` are the outputs of two systems with their statistics for `chrf`.
    """
    (old, old_statistics), (new, new_statistics) = before, after
    scores = zip(chrf.sentence_scores(old_statistics), chrf.sentence_scores(new_statistics), strict=True)
    found = [
        ChangedSentence(
            row + 1,
            None if sources is None else sources[row],
            [one[row] for one in references],
            old[row],
            new[row],
            higher - lower,
        )
        for row, (lower, higher) in enumerate(scores)
        if old[row] != new[row]
    ]
    by_change = sorted(found, key=lambda one: -one.change)
    return Changes(
        [one for one in by_change if one.change > 0][:most],
        [one for one in by_change[::-1] if one.change < 0][:most],
        len(old) - len(found),
    )

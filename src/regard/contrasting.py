"""Which of two translations does a model prefer: contrastive evaluation (Sennrich 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regard.config import SearchOptions
from regard.decoding.translator import Translator
from regard.text.contrastive_pairs import ContrastivePair

Z = 1.959964  # of a normal distribution, 95 % of which lie between -Z and Z


@dataclass(frozen=True)
class Preference:
    """The scores that a model gives to the right and the wrong translation of a source."""

    pair: ContrastivePair
    right: float
    wrong: float

    @property
    def correct(self) -> bool:
        """Whether the right one scores higher."""
        return self.right > self.wrong


@dataclass(frozen=True)
class ContrastAccuracy:
    """How often the right translation is preferred, with the bounds of a 95 % interval."""

    category: str  # empty: of all pairs
    correct: int
    total: int

    @property
    def accuracy(self) -> float:
        return self.correct / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """The bounds of the interval of Wilson (1927), which is right for few pairs and for shares near 1."""
        share, n = self.accuracy, self.total
        middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
        half = Z / (1 + Z**2 / n) * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
        return max(0.0, middle - half), min(1.0, middle + half)


def contrast(
    translator: Translator,
    pairs: Sequence[ContrastivePair],
    *,
    options: SearchOptions | None = None,
    to: str | None = None,
) -> list[Preference]:
    """Return the scores of both translations of each source."""
    sources = [pair.source for pair in pairs]
    right = translator.score(sources, [pair.right for pair in pairs], options=options, to=to)
    wrong = translator.score(sources, [pair.wrong for pair in pairs], options=options, to=to)
    return [Preference(pair, one.score, other.score) for pair, one, other in zip(pairs, right, wrong, strict=True)]


def accuracies(preferences: Sequence[Preference]) -> list[ContrastAccuracy]:
    """Return the accuracy of all pairs, and that of each category, in the order of the pairs, if there are any."""
    categories = [one for one in dict.fromkeys(one.pair.category for one in preferences) if one]
    return [
        ContrastAccuracy(category, sum(one.correct for one in some), len(some))
        for category in ("", *categories)
        if (some := [one for one in preferences if category in ("", one.pair.category)])
    ]

"""Dev scores of a model: chrF of greedy translations, which varies less than BLEU on the few sentences there are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from regard.config import EvaluateConfig
from regard.decoding.translator import Translator
from regard.metrics import chrf
from regard.text.pair import Pair

METRIC = "chrF"
CHECKED = 50  # pairs whose languages are checked
MARGIN = 0.1  # by which the outputs must be more similar to the sources


@dataclass(frozen=True)
class DevScores:
    """Scores on the dev sets of the domain, and of the general domain if there is one."""

    domain: float
    general: float | None

    def loss_from(self, base: DevScores) -> float:
        """Return how many points the general score is below that of the base model."""
        return 0.0 if self.general is None or base.general is None else base.general - self.general


@dataclass(frozen=True)
class DevSets:
    """The dev sets, and how they are scored."""

    domain: Sequence[Pair]
    general: Sequence[Pair]
    config: EvaluateConfig

    def scores(self, translator: Translator) -> DevScores:
        """Return the scores of a model."""
        return DevScores(
            self._score(translator, self.domain), self._score(translator, self.general) if self.general else None
        )

    def _score(self, translator: Translator, pairs: Sequence[Pair]) -> float:
        sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
        outputs = translator.translate(sources, options=translator.options.replace(beam=1))
        return chrf(outputs, references, sources, self.config)[0]


def source_is_target_language(translator: Translator, pairs: Sequence[Pair]) -> bool:
    """Whether the sources seem to be in the language that the model translates into, as when the sides are exchanged.

    The language of the outputs is recognized by how often each three characters in a row occur.
    """
    some = pairs[:CHECKED]
    sources = [pair.source for pair in some]
    outputs = translator.translate(sources, options=translator.options.replace(beam=1))
    return similarity(outputs, sources) > similarity(outputs, [pair.target for pair in some]) + MARGIN


def similarity(texts: Sequence[str], others: Sequence[str]) -> float:
    """Return the cosine of the counts of all three characters in a row in two sets of texts: from 0 to 1, if equal."""
    one, other = (Counter(chain.from_iterable(map(_trigrams, some))) for some in (texts, others))
    product = sum(count * other[characters] for characters, count in one.items())
    return product / math.sqrt(max(1, sum(x * x for x in one.values()) * sum(x * x for x in other.values())))


def _trigrams(text: str) -> list[str]:
    return [text[place : place + 3] for place in range(len(text) - 2)]

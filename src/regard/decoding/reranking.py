"""Choosing among what search found: each stage gives the hypotheses of a text new scores, and the best come first.

A rescorer replaces the scores by those of another model. A reverse model and the coverage penalty add to them.
Minimum-Bayes-risk decoding replaces them by expected utilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from regard.config import SearchOptions
from regard.decoding.backend import Backend
from regard.decoding.translation import Translation
from regard.decoding.utility import expected_utilities
from regard.errors import DecodeError

Ready = list[tuple[int, list[Translation]]]  # the index of a text, and its translations
ScorePairs = Callable[[Sequence[str], Sequence[str]], Sequence[float]]  # of sources and their translations


@dataclass(frozen=True)
class Searched:
    """What search found for one text."""

    number: int  # the index of the text
    source: str
    source_ids: Sequence[int]  # as the model read them, with tags and without EOS; empty for an empty text
    translations: list[Translation]
    target_ids: list[list[int]]  # of each translation, without EOS


class Stage(Protocol):
    """A way of scoring hypotheses."""

    @property
    def batched(self) -> bool:
        """Whether it is faster for many texts together."""

    def scores(self, found: Sequence[Searched]) -> Iterable[float]:
        """Return the scores of the hypotheses of all texts, in order."""


@dataclass(frozen=True)
class Rescoring:
    """The scores of another model of the same direction (noisy parallel decoding, Gu et al. 2018)."""

    score_pairs: ScorePairs
    batched = True

    def scores(self, found: Sequence[Searched]) -> Iterable[float]:
        sources = [one.source for one in found for _ in one.translations]
        return self.score_pairs(sources, _texts(found))


@dataclass(frozen=True)
class ReverseScoring:
    """The score so far plus a part of the score that a model of the opposite direction gives the source."""

    score_pairs: ScorePairs
    weight: float
    batched = True

    def scores(self, found: Sequence[Searched]) -> Iterable[float]:
        sources = [one.source for one in found for _ in one.translations]
        backward = self.score_pairs(_texts(found), sources)
        return [one + self.weight * other for one, other in zip(_scores(found), backward, strict=True)]


@dataclass(frozen=True)
class CoverageScoring:
    """The score so far plus the coverage penalty (Wu et al. 2016, equation 14)."""

    model: Backend
    options: SearchOptions
    tags: int  # symbols in front of each source, which need not be covered
    batched = True

    def scores(self, found: Sequence[Searched]) -> Iterable[float]:
        rows = [(one.source_ids, ids) for one in found for ids in one.target_ids]
        penalties = self.model.coverage_penalties(rows, tags=self.tags, budget=self.options.tokens)
        beta = self.options.coverage_penalty
        return [one + beta * other for one, other in zip(_scores(found), penalties, strict=True)]


@dataclass(frozen=True)
class MinimumBayesRisk:
    """The expected utility, if all hypotheses are equally likely to be the reference (Eikema and Aziz 2020)."""

    metric: str
    batched = False

    def scores(self, found: Sequence[Searched]) -> Iterable[float]:
        return [score for one in found for score in expected_utilities(_texts([one]), self.metric)]


class Reranker:
    """The stages that options and models ask for."""

    def __init__(
        self,
        options: SearchOptions,
        model: Backend,
        *,
        rescorer: ScorePairs | None = None,
        reverse: ScorePairs | None = None,
        tags: int = 0,
    ) -> None:
        """Raise DecodeError if stages cannot be combined, or the model cannot have them."""
        self.options = options
        self.stages: list[Stage] = []
        if rescorer is not None:
            self.stages.append(Rescoring(rescorer))
        if reverse is not None:
            self.stages.append(ReverseScoring(reverse, options.reverse_weight))
        if options.coverage_penalty:
            model.refuse_coverage()
            self.stages.append(CoverageScoring(model, options, tags))
        if options.mbr is not None:
            for name, other in {"a rescorer": rescorer, "a reverse model": reverse}.items():
                if other is not None:
                    raise DecodeError(f"mbr chooses by expected utility alone, without {name}; give one or the other")
            self.stages.append(MinimumBayesRisk(options.mbr))

    @property
    def search_options(self) -> SearchOptions:
        """The options of the search whose results are ranked."""
        return self.options.replace(nbest=self.options.beam, scores=True) if self.stages else self.options

    def each(self, found: Iterable[list[Searched]]) -> Iterator[Ready]:
        """Yield the translations of texts, best first: as search finds them, or all at the end if a stage is batched."""
        if any(stage.batched for stage in self.stages):
            # Sorted, because the batches of a stage depend on the order.
            found = [sorted((one for some in found for one in some), key=lambda one: one.number)]
        for some in found:
            yield [(one.number, best) for one, best in zip(some, self._ranked(some), strict=True)]

    def _ranked(self, found: list[Searched]) -> Iterator[list[Translation]]:
        if not self.stages:
            yield from (one.translations for one in found)
            return
        # An empty text has one translation, which nothing has to score.
        scored = [one for one in found if one.source_ids]
        for stage in self.stages:
            scores = iter(stage.scores(scored))
            scored = [
                replace(one, translations=[replace(each, score=next(scores)) for each in one.translations])
                for one in scored
            ]
        ranked = {one.number: sorted(one.translations, key=lambda one: -one.score) for one in scored}
        if self.options.mbr is not None:
            # Equal samples are counted, but listed once.
            ranked = {
                number: list({one.text: one for one in some[::-1]}.values())[::-1] for number, some in ranked.items()
            }
        yield from (ranked.get(one.number, one.translations)[: self.options.nbest] for one in found)


def _texts(found: Sequence[Searched]) -> list[str]:
    return [each.text for one in found for each in one.translations]


def _scores(found: Sequence[Searched]) -> list[float]:
    return [each.score for one in found for each in one.translations]

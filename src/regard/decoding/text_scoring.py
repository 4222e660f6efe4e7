"""Scores of given translations, and calibrated probabilities of found ones, by forced decoding."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Self

from regard.config import SearchOptions
from regard.decoding.backend import Backend
from regard.decoding.hypothesis import Check, Hypothesis, SearchResults, length_penalty
from regard.decoding.requests import Request
from regard.decoding.translation import Translation
from regard.errors import DecodeError
from regard.messages import counted
from regard.text.inputs import as_texts
from regard.text.tokenizer import EOS
from regard.text.unknown_words import ExtendedVocabulary


class TextScoring(ABC):
    """The part of a `Translator` that scores translations, which the translator need not have found."""

    backend: Backend
    options: SearchOptions
    warn: Callable[[str], None]
    # Divides the logits, so that probabilities are those of being right; None: the run has not been calibrated.
    calibrated_temperature: float | None = None

    # How texts become ids, and ids texts

    @abstractmethod
    def into(self, language: str | None = None, *, tag: str | None = None, pivot: str | None = None) -> Self: ...

    @abstractmethod
    def _encode_all(
        self, requests: Sequence[Request], protect: bool | None
    ) -> tuple[list[list[int]], list[ExtendedVocabulary]]: ...

    @abstractmethod
    def _translation(
        self, request: Request, vocabulary: ExtendedVocabulary, found: Hypothesis, options: SearchOptions
    ) -> Translation: ...

    @property
    def longest_source(self) -> int:
        """The most tokens of a source that are translated, EOS not counted."""
        return self._longest_source(self.options)

    def _longest_source(self, options: SearchOptions) -> int:
        # EOS needs a position too.
        return (
            options.max_source
            if self.backend.max_length is None
            else min(options.max_source, self.backend.max_length - 1)
        )

    def _cut(self, encoded: list[list[int]], numbers: Iterable[int], first: int, options: SearchOptions) -> None:
        """Cut these sources to the most tokens that are translated, with a warning."""
        most = self._longest_source(options)
        for number in numbers:
            if len(encoded[number]) > most:
                length = len(encoded[number])
                self.warn(f"line {first + number} has {counted(length, 'token')}; only the first {most} are translated")
                encoded[number] = encoded[number][:most]

    # Scores

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        options: SearchOptions | None = None,
        to: str | None = None,
        first: int = 1,
    ) -> list[Translation]:
        """Return each target as a translation of its source, with the score that search would give it, and its tokens.

        The score is the log-probability of the target's tokens, EOS included, divided by the length penalty. `to` is the
        language of the targets, of a model that has several. `first` is the line number of the first pair in warnings.
        """
        texts, outputs = as_texts(sources, call="score()"), as_texts(targets, call="score()")
        if len(texts) != len(outputs):
            raise DecodeError(
                f"score() was given {counted(len(texts), 'source')} and {counted(len(outputs), 'target')}; give equally many"
            )
        chosen = self if to is None else self.into(to)
        return chosen._score(texts, outputs, self.options.with_given(options), first)

    def _score(
        self, sources: Sequence[str], targets: Sequence[str], options: SearchOptions, first: int
    ) -> list[Translation]:
        model, temperature = self.autoregressive(), self.temperature_of(options)
        encoded, outputs, vocabularies = self.encode_pairs(sources, targets, options, first)
        found = model.forced_scores(encoded, outputs, temperature=temperature, tokens=options.tokens)
        results = []
        for source, vocabulary, target, ids, scores in zip(sources, vocabularies, targets, outputs, found, strict=True):
            score = sum(scores.scores) / length_penalty(len(ids), options)
            hypothesis = Hypothesis(ids[:-1] if ids[-1] == model.eos else ids, score, *scores)
            blank = not source.strip() and not target.strip()  # search translates nothing by nothing
            translation = self._translation(Request(source), vocabulary, hypothesis, options)
            results.append(Translation(target, 0.0) if blank else replace(translation, text=target))
        return results

    def encode_pairs(
        self, sources: Sequence[str], targets: Sequence[str], options: SearchOptions, first: int = 1
    ) -> tuple[list[list[int]], list[list[int]], list[ExtendedVocabulary]]:
        """Return the ids of sources and targets, each with EOS, and the vocabularies of the targets.

        What is too long for the model is cut, with a warning.
        """
        model = self.autoregressive()
        encoded, vocabularies = self._encode_all([Request(text) for text in sources], options.protect)
        self._cut(encoded, range(len(encoded)), first, options)
        outputs = [[*one.encode(text), model.eos] for one, text in zip(vocabularies, targets, strict=True)]
        for number, ids in enumerate(outputs):
            if model.max_length is not None and len(ids) > model.max_length:
                self.warn(f"target {first + number} has {counted(len(ids) - 1, 'token')}; only its beginning is scored")
                outputs[number] = ids[: model.max_length]
        return [[*ids, EOS] for ids in encoded], outputs, vocabularies

    def autoregressive(self) -> Backend:
        """Return the model. Raise DecodeError if it does not output one token after another."""
        if self.backend.non_autoregressive:
            raise DecodeError(
                "this model outputs all tokens at once; only one that outputs token by token scores translations"
            )
        return self.backend

    def temperature_of(self, options: SearchOptions) -> float | None:
        """Return the temperature of a calibrated run, if confidence is wanted."""
        if options.confidence and self.autoregressive().num_members > 1:
            raise DecodeError("an ensemble has no confidence, because each run is calibrated by itself; use one run")
        if options.confidence and self.calibrated_temperature is None:
            raise DecodeError("the run has not been calibrated, so it has no confidence; run: regard calibrate RUN")
        return self.calibrated_temperature if options.confidence else None

    def calibrated(
        self,
        found: SearchResults,
        encoded: Sequence[Sequence[int]],
        temperature: float,
        options: SearchOptions,
        check: Check,
    ) -> SearchResults:
        """Return the results with log-probabilities under the temperature, by a second pass over the outputs."""
        model = self.autoregressive()
        every = [(number, one) for number, best in found for one in best]
        scored = iter(
            model.forced_scores(
                [[*encoded[number], EOS] for number, _ in every],
                [[*one.ids, model.eos][: len(one.token_scores or ())] for _, one in every],
                temperature=temperature,
                tokens=options.tokens,
                check=check,
            )
        )
        return [(number, [one._replace(calibrated=next(scored).calibrated) for one in best]) for number, best in found]

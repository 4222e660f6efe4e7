"""Translation of texts: batched by length, and returned in the order of the input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regard.config import SearchOptions
from regard.decoding.backend import Backend
from regard.decoding.constraints import Demands
from regard.decoding.hypothesis import Check, Hypothesis, never_stop
from regard.decoding.options import refuse_without_effect
from regard.decoding.requests import MOST_FORMS, OutputDemands, Request
from regard.decoding.reranking import Ready, Reranker, ScorePairs, Searched
from regard.decoding.shortlist import Shortlist
from regard.decoding.text_scoring import TextScoring
from regard.decoding.translation import ScoredToken, Translation, confidence_of
from regard.errors import DecodeError
from regard.messages import warn_caller
from regard.text.inputs import refuse_no_list, refuse_other_types
from regard.text.languages import Languages
from regard.text.protected_spans import Masked, lost_spans, mask
from regard.text.tokenizer import EOS
from regard.text.tokenizer_pair import Tokenizers
from regard.text.unknown_share import UnknownText
from regard.text.unknown_words import ExtendedVocabulary, extend

if TYPE_CHECKING:
    from regard.models.base import Model
    from regard.text.glossary import Glossary

__all__ = ["READ_AHEAD", "Ready", "ScoredToken", "Translation", "Translator"]

NO_LANGUAGES = Languages()
READ_AHEAD = 4096  # lines that are read, sorted by length and translated together


class Translator(TextScoring):
    """A model with its tokenizers.

    A search takes the options that it is not given from `options`. `warn` receives a message for every source that is cut;
    by default it is a `RegardWarning` of Python's warnings. A model of several languages translates after `into`.
    """

    def __init__(
        self,
        model: Model | Backend,
        tokenizers: Tokenizers,
        options: SearchOptions,
        *,
        warn: Callable[[str], None] = warn_caller,
        languages: Languages = NO_LANGUAGES,
    ) -> None:
        self.backend, self.tokenizers, self.warn = _as_backend(model), tokenizers, warn
        self.options, self.languages = SearchOptions().with_given(options), languages
        self.tags: tuple[str, ...] | None = None  # symbols in front of each source; None: none have been chosen
        self.pivot: Translator | None = None  # translates each text first, into another language
        self.glossary: Glossary | None = None
        # Models of the same direction and of the opposite one that score the outputs of search (`decoding.reranking`).
        self.rescorer: Translator | None = None
        self.reverse: Translator | None = None
        self._demands = OutputDemands(self.backend, tokenizers)

    @property
    def model(self) -> Model:
        """The model as a module of PyTorch. Where the engine computes, it is loaded when it is first asked for."""
        return self.backend.model

    def into(self, language: str | None = None, *, tag: str | None = None, pivot: str | None = None) -> Translator:
        """Return a translator of the same model into one of its languages; None: into its only one.

        `tag` is a symbol of the recipe (`data.train.tag`) in front of each source. With `pivot` each text is translated into
        that language first, and from there into the other one.
        """
        if pivot is not None and (self.reverse is not None or self.rescorer is not None):
            kind = "rescorer" if self.reverse is None else "reverse model"
            raise DecodeError(f"a {kind} is of one direction, and a pivot makes two; give one or the other")
        chosen = self.with_tags((*self.languages.tags_into(language), *(() if tag is None else (tag,))))
        chosen.pivot = None if pivot is None else self.into(pivot, tag=tag)
        return chosen

    def with_tags(self, tags: tuple[str, ...]) -> Translator:
        """Return a translator of the same model with these symbols in front of each source."""
        self.tokenizers.tag_ids(tags)
        chosen = copy(self)
        chosen.tags = tags
        if self.rescorer is not None:
            # Another model may not know all of them.
            chosen.rescorer = self.rescorer.with_tags(
                tuple(tag for tag in tags if tag in self.rescorer.tokenizers.tags)
            )
        return chosen

    def with_glossary(self, glossary: Glossary | Path | str | None) -> Translator:
        """Return a translator of the same model that translates the terms of a glossary as it says; None: without one."""
        chosen = copy(self)
        if isinstance(glossary, Path | str):
            # Not at the top, because it reads all formats of parallel text.
            from regard.text.glossary import read_glossary

            glossary = read_glossary(glossary)
        chosen.glossary = glossary
        if chosen.glossary is not None:
            chosen.glossary.warn_of_many_forms(MOST_FORMS, self.warn)
        return chosen

    def _with_terms(self, request: Request) -> Request:
        """Return a request with the terms of the glossary that its text has."""
        if self.glossary is None:
            return request
        return replace(request, terms=(*request.terms, *self.glossary.phrases(request.text)))

    def tag_ids(self) -> list[int]:
        """Return the ids in front of each source. Raise DecodeError if the language is to be chosen, and none has been."""
        tags = self.languages.tags_into(None) if self.tags is None else self.tags
        return self.tokenizers.tag_ids(tags)

    def encode(self, text: str, *, protect: bool | None = None) -> tuple[list[int], ExtendedVocabulary]:
        """Return the ids of a source, without EOS, and the vocabulary of its output: with what it copies from the source.

        `protect` is that of the options of search.
        """
        tags = self.tag_ids()
        if self.backend.copies:
            ids, vocabulary = extend(self.tokenizers.source, text)
            return [*tags, *ids], vocabulary
        masked = self._mask(Request(text), protect)
        ids = self.tokenizers.source.encode(text if masked is None else masked.text)
        return [*tags, *ids], ExtendedVocabulary(self.tokenizers.target, masked=masked)

    def unknown_text(self) -> UnknownText | None:
        """Return what looks for words or characters that the model does not know; None if it copies them."""
        tokenizer = self.tokenizers.source
        # Not those of other toolkits and of plug-ins, of which nothing is known.
        judged = tokenizer.kind in ("word", "char", "bpe", "unigram") and not self.backend.copies
        return UnknownText(tokenizer) if judged else None

    def unprotected(self, request: Request, *, protect: bool | None = None) -> str:
        """Return the text of a request without the protected spans, which the model need not know."""
        masked = self._mask(request, protect)
        return request.text if masked is None else masked.unprotected

    def _mask(self, request: Request, protect: bool | None) -> Masked | None:
        """Return the text with placeholders, if the model knows them and the text has spans to protect."""
        if self._demands.symbols is None or (protect is False and not request.keep):
            return None
        masked = mask(request.text, request.keep)
        return masked if masked.spans else None

    def demands(
        self,
        sources: Sequence[tuple[Sequence[int], ExtendedVocabulary]],
        prefixes: Sequence[Sequence[int]] = (),
        *,
        shortlist: int = 0,
    ) -> Demands | None:
        """Return what the outputs for these sources must have: placeholders, and prefixes of ids; None: nothing."""
        return self._demands.demands(sources, prefixes=prefixes, shortlist=shortlist)

    def use_shortlist(self, find: Callable[[], Shortlist | None]) -> None:
        """Let searches with the option `shortlist` use what this function returns when it is first needed."""
        self._demands.find_shortlist = cache(find)

    def refuse(self, request: Request, options: SearchOptions | None = None) -> None:
        """Raise DecodeError if the model or the options of search cannot satisfy a request."""
        combined = self.options.with_given(options)
        refuse_without_effect(combined, self.options, self.backend)
        self._demands.refuse(request, combined)

    def output_limit(self, request: Request, source_length: int, options: SearchOptions) -> int:
        """Return the most tokens of the output for a source of this many tokens."""
        limit = self._demands.limit(request, options.limit(source_length), options)
        return limit if self.backend.max_length is None else min(limit, self.backend.max_length)

    def translate(
        self,
        texts: Sequence[str | Request],
        *,
        options: SearchOptions | None = None,
        to: str | None = None,
        pivot: str | None = None,
    ) -> list[str]:
        """Return the best translation of each text: into the language `to`, by way of another one; see `into`.

        A `Request` is a text with what its translation must have.
        """
        refuse_no_list(texts, call="translate()")
        texts = list(texts)
        options = self.options.with_given(options)
        # Of several samples the likeliest is returned.
        options = options.replace(scores=options.sample and options.beam > 1)
        chosen = self if to is None and pivot is None else self.into(to, pivot=pivot)
        return [best[0].text for best in chosen.stream(texts, options=options)]

    def predict(self, inputs: Sequence[str | Request], *, options: SearchOptions | None = None) -> list[str]:
        """Return the best translation of each text, as the predictors of all tasks do."""
        refuse_no_list(inputs, call="predict()")
        return self.translate(inputs, options=options)

    def stream(
        self,
        texts: Iterable[str | Request],
        *,
        options: SearchOptions | None = None,
        first: int = 1,
        on_ready: Callable[[int], None] = lambda count: None,
    ) -> Iterator[list[Translation]]:
        """Yield the `nbest` best translations of each text, in order. An empty text has an empty translation.

        `first` is the line number of the first text in warnings. `on_ready` is called with the number of texts that have
        been translated since the last call, before they are yielded.
        """
        refuse_no_list(texts, call="stream()")
        lines = iter(texts)
        while chunk := list(islice(lines, READ_AHEAD)):
            refuse_other_types([one.text if isinstance(one, Request) else one for one in chunk], first=first)
            found: dict[int, list[Translation]] = {}
            for some in self.each(chunk, options=options, first=first):
                found.update(some)
                on_ready(len(some))
            yield from (found[number] for number in range(len(chunk)))
            first += len(chunk)

    def each(
        self,
        texts: Sequence[str | Request],
        *,
        options: SearchOptions | None = None,
        first: int = 1,
        check: Check = never_stop,
    ) -> Iterator[Ready]:
        """Yield the translations of texts as soon as they are ready, with the index of each text, in any order.

        Outputs that a model scores once more all come at the end (`decoding.reranking`). `check` is called before every
        step of a search.
        """
        options = self.options.with_given(options)
        requests = [one if isinstance(one, Request) else Request(one) for one in texts]
        refuse_without_effect(
            options, self.options, self.backend, several=self.rescorer is not None or self.reverse is not None
        )
        if self.pivot is not None:
            if self.glossary is not None or any(request.keep for request in requests):
                what = "a glossary" if self.glossary is not None else "parts to keep"
                raise DecodeError(f"{what} cannot be followed through a pivot; translate in two calls instead")
            sources = [request.text for request in requests]
            middle = self.pivot.each(
                sources, options=options.replace(nbest=1, confidence=False), first=first, check=check
            )
            found = {number: best[0].text for some in middle for number, best in some}
            requests = [replace(request, text=found[number]) for number, request in enumerate(requests)]
        requests = [self._with_terms(request) for request in requests]
        for request in requests:
            self._demands.refuse(request, options)
        if options.shortlist:
            self._demands.shortlist()
        reranker = Reranker(
            options,
            self.backend,
            rescorer=self._scores_by(self.rescorer, None),
            reverse=self._scores_by(self.reverse, options),
            tags=len(self.tag_ids()),
        )
        yield from reranker.each(self._search(requests, first, reranker.search_options, check))

    @staticmethod
    def _scores_by(model: Translator | None, options: SearchOptions | None) -> ScorePairs | None:
        """Return the function that scores pairs of texts with another model, with the length penalty of these options."""
        if model is None:
            return None
        penalty = options and SearchOptions(
            length_penalty=options.length_penalty,
            length_penalty_kind=options.length_penalty_kind,
            tokens=options.tokens,
        )
        return lambda sources, targets: [one.score for one in model.score(sources, targets, options=penalty)]

    def _search(
        self, requests: Sequence[Request], first: int, options: SearchOptions, check: Check
    ) -> Iterator[list[Searched]]:
        encoded, vocabularies = self._encode_all(requests, options.protect)
        tags = len(self.tag_ids())
        empty = np.array(
            [len(ids) == tags or not one.text.strip() for ids, one in zip(encoded, requests, strict=True)],
            dtype=np.bool_,
        )
        if empty.any():
            yield [
                Searched(number, requests[number].text, [], [Translation("", 0.0)], [[]])
                for number in np.flatnonzero(empty).tolist()
            ]
        numbers = np.flatnonzero(~empty).tolist()
        self._cut(encoded, numbers, first, options)
        demands = self._demands.demands(
            [(encoded[number], vocabularies[number]) for number in numbers],
            [requests[number] for number in numbers],
            shortlist=options.shortlist,
        )
        if options.confidence:
            self.autoregressive()
            options = options.replace(token_scores=True)
        temperature = self.temperature_of(options)
        sources = [[*encoded[number], EOS] for number in numbers]
        for results in self.backend.search(sources, options=options, demands=demands, check=check):
            found = [(numbers[place], best) for place, best in results]
            if temperature is not None:
                found = self.calibrated(found, encoded, temperature, options, check)
            yield [
                Searched(
                    number,
                    requests[number].text,
                    encoded[number],
                    [self._translation(requests[number], vocabularies[number], one, options) for one in best],
                    [one.ids for one in best],
                )
                for number, best in found
            ]

    def _translation(
        self, request: Request, vocabulary: ExtendedVocabulary, found: Hypothesis, options: SearchOptions
    ) -> Translation:
        output = vocabulary.decode(found.ids)
        reported = options.protect or request.keep or (options.protect is None and self._demands.symbols is not None)
        lost = lost_spans(request.text, output, request.keep) if reported else []
        tokens = None
        if found.token_scores is not None:
            names = vocabulary.tokens([*found.ids, EOS][: len(found.token_scores)])
            tokens = tuple(map(ScoredToken, names, found.token_scores))
        confidence = None
        if found.calibrated is not None:
            confidence = confidence_of(output, found.ids, found.calibrated, vocabulary.decode)
        lacking = self._demands.lacking(request, found.ids)
        return Translation(output, found.score, (*lost, *lacking), tokens, confidence)

    def _encode_all(
        self, requests: Sequence[Request], protect: bool | None
    ) -> tuple[list[list[int]], list[ExtendedVocabulary]]:
        """Return the ids of all texts, and the vocabularies of their outputs."""
        if self.backend.copies:
            extended = [self.encode(request.text) for request in requests]
            return [ids for ids, _ in extended], [vocabulary for _, vocabulary in extended]
        tags, masks = self.tag_ids(), [self._mask(request, protect) for request in requests]
        shown = [one.text if masked is None else masked.text for one, masked in zip(requests, masks, strict=True)]
        encoded = self.tokenizers.source.encode_all(shown)
        return (
            [[*tags, *ids] for ids in encoded] if tags else encoded,
            [ExtendedVocabulary(self.tokenizers.target, masked=masked) for masked in masks],
        )


def _as_backend(model: Model | Backend) -> Backend:
    """Return the backend of a model of PyTorch; one that is a backend already stays as it is."""
    if isinstance(model, Backend):
        return model
    # Not at the top: torch may not be installed where the engine computes.
    from regard.decoding.torch_backend import TorchBackend

    return TorchBackend(model)

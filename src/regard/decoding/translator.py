"""Translation of texts: batched by length, and returned in the order of the input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np

from regard.config import SearchOptions
from regard.data.batch_sampler import batches_by_length
from regard.data.ragged import Ragged
from regard.decoding.automaton import Automaton
from regard.decoding.constraints import Demands
from regard.decoding.ranking import Check, Hypothesis, never_stop
from regard.decoding.rescorer import Rescorer
from regard.decoding.search import search_all
from regard.messages import warn_caller
from regard.models.base import Model, Seq2Seq
from regard.text.inputs import as_texts, refuse_no_list, refuse_other_types
from regard.text.languages import Languages
from regard.text.protected_spans import Masked, lost_spans, mask, placeholder_ids
from regard.text.tokenizer import EOS, Tokenizers
from regard.text.unknown_words import ExtendedVocabulary, extend

NO_LANGUAGES = Languages()
READ_AHEAD = 4096  # lines that are read, sorted by length and translated together


@dataclass(frozen=True)
class Translation:
    """A translation of a text, and its score."""

    text: str
    score: float
    lost: tuple[str, ...] = ()  # protected spans of the source that it lacks


Ready = list[tuple[int, list[Translation]]]  # the index of a text, and its translations


class Translator:
    """A model with its tokenizers.

    A search takes the options that it is not given from `options`. `warn` receives a message for every source that is cut;
    by default it is a `RegardWarning` of Python's warnings. A model of several languages translates after `into`.
    """

    def __init__(
        self,
        model: Model,
        tokenizers: Tokenizers,
        options: SearchOptions,
        *,
        warn: Callable[[str], None] = warn_caller,
        rescorer: Rescorer | None = None,
        languages: Languages = NO_LANGUAGES,
    ) -> None:
        self.model, self.tokenizers, self.warn, self.rescorer = model, tokenizers, warn, rescorer
        self.options, self.languages = SearchOptions().with_given(options), languages
        self.tags: tuple[str, ...] | None = None  # symbols in front of each source; None: none have been chosen
        self.pivot: Translator | None = None  # translates each text first, into another language
        sides = placeholder_ids(tokenizers.source), placeholder_ids(tokenizers.target)
        # The ids of the placeholders on both sides, if the model knows them.
        self._symbols = None if model.non_autoregressive or model.copies or not all(sides) else sides

    def into(self, language: str | None = None, *, tag: str | None = None, pivot: str | None = None) -> Translator:
        """Return a translator of the same model into one of its languages; None: into its only one.

        `tag` is a symbol of the recipe (`data.train.tag`) in front of each source. With `pivot` each text is translated into
        that language first, and from there into the other one.
        """
        chosen = self.with_tags((*self.languages.tags_into(language), *(() if tag is None else (tag,))))
        chosen.pivot = None if pivot is None else self.into(pivot, tag=tag)
        return chosen

    def with_tags(self, tags: tuple[str, ...]) -> Translator:
        """Return a translator of the same model with these symbols in front of each source."""
        self.tokenizers.tag_ids(tags)
        chosen = copy(self)
        chosen.tags = tags
        if self.rescorer is not None:
            chosen.rescorer = self.rescorer.with_tags(tags)
        return chosen

    def tag_ids(self) -> list[int]:
        """Return the ids in front of each source. Raise DecodeError if the language is to be chosen, and none has been."""
        tags = self.languages.tags_into(None) if self.tags is None else self.tags
        return self.tokenizers.tag_ids(tags)

    @property
    def longest_source(self) -> int:
        """The most tokens of a source that are translated, EOS not counted."""
        return self._longest_source(self.options)

    def _longest_source(self, options: SearchOptions) -> int:
        # EOS needs a position too.
        return (
            options.max_source if self.model.max_length is None else min(options.max_source, self.model.max_length - 1)
        )

    def encode(self, text: str, *, protect: bool | None = None) -> tuple[list[int], ExtendedVocabulary]:
        """Return the ids of a source, without EOS, and the vocabulary of its output: with what it copies from the source.

        `protect` is that of the options of search.
        """
        tags = self.tag_ids()
        if self.model.copies:
            ids, vocabulary = extend(self.tokenizers.source, text)
            return [*tags, *ids], vocabulary
        masked = self._mask(text, protect)
        ids = self.tokenizers.source.encode(text if masked is None else masked.text)
        return [*tags, *ids], ExtendedVocabulary(self.tokenizers.target, masked=masked)

    def _mask(self, text: str, protect: bool | None) -> Masked | None:
        """Return the text with placeholders, if the model knows them and the text has spans to protect."""
        if self._symbols is None or protect is False:
            return None
        masked = mask(text)
        return masked if masked.spans else None

    def demands(
        self,
        sources: Sequence[tuple[Sequence[int], ExtendedVocabulary]],
        prefixes: Sequence[Sequence[int]] = (),
    ) -> Demands | None:
        """Return what the outputs for these sources must have: placeholders, and prefixes; None: nothing."""
        if self._symbols is None and not any(prefixes):
            return None
        prefixes = prefixes or [()] * len(sources)
        automata = [
            self._automaton(ids, vocabulary.masked, prefix)
            for (ids, vocabulary), prefix in zip(sources, prefixes, strict=True)
        ]
        return Demands([one or None for one in automata], tuple(self._symbols[1]) if self._symbols is not None else ())

    def _automaton(self, ids: Sequence[int], masked: Masked | None, prefix: Sequence[int]) -> Automaton:
        """Return what the output of one source must have."""
        assert isinstance(self.model, Seq2Seq)
        if masked is None or self._symbols is None:
            return Automaton(self.model.eos, tuple(prefix))
        # Not the placeholders that were cut off with the end of the source.
        there, (own, theirs) = set(ids), self._symbols
        wanted = [number for number in range(len(masked.spans)) if own[number] in there]
        return Automaton(
            self.model.eos,
            tuple(prefix),
            symbols=tuple(theirs[number] for number in wanted),
            in_order=tuple(theirs[number] for number in wanted if masked.spans[number].kind == "tag"),
        )

    def translate(
        self,
        texts: Sequence[str],
        *,
        options: SearchOptions | None = None,
        to: str | None = None,
        pivot: str | None = None,
    ) -> list[str]:
        """Return the best translation of each text: into the language `to`, by way of another one; see `into`."""
        texts = as_texts(texts, call="translate()")
        options = self.options.with_given(options).replace(scores=False)
        chosen = self if to is None and pivot is None else self.into(to, pivot=pivot)
        return [best[0].text for best in chosen.stream(texts, options=options)]

    def predict(self, inputs: Sequence[str], *, options: SearchOptions | None = None) -> list[str]:
        """Return the best translation of each text, as the predictors of all tasks do."""
        refuse_no_list(inputs, call="predict()")
        return self.translate(inputs, options=options)

    def stream(
        self,
        texts: Iterable[str],
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
            refuse_other_types(chunk, first=first)
            found: dict[int, list[Translation]] = {}
            for some in self.each(chunk, options=options, first=first):
                found.update(some)
                on_ready(len(some))
            yield from (found[number] for number in range(len(chunk)))
            first += len(chunk)

    def each(
        self,
        texts: Sequence[str],
        *,
        options: SearchOptions | None = None,
        first: int = 1,
        check: Check = never_stop,
    ) -> Iterator[Ready]:
        """Yield the translations of texts as soon as they are ready, with the index of each text, in any order.

        Rescored outputs all come at the end. `check` is called before every step of a search.
        """
        options = self.options.with_given(options)
        if self.pivot is not None:
            middle = self.pivot.each(texts, options=options.replace(nbest=1), first=first, check=check)
            found = {number: best[0].text for some in middle for number, best in some}
            texts = [found[number] for number in range(len(texts))]
        if self.rescorer is None:
            yield from self._search(texts, first, options, check)
            return
        candidates = self._search(texts, first, options.replace(nbest=options.beam), check)
        # Sorted, because the rescorer's batches depend on the order.
        ready = sorted((number, best) for some in candidates for number, best in some)
        rescored = self._rescored([texts[number] for number, _ in ready], [best for _, best in ready], self.rescorer)
        yield [(number, best[: options.nbest]) for (number, _), best in zip(ready, rescored, strict=True)]

    def _rescored(
        self, texts: Sequence[str], candidates: list[list[Translation]], rescorer: Rescorer
    ) -> Iterator[list[Translation]]:
        """Yield the translations of each text with the rescorer's scores, best first."""
        counts = [len(translations) for translations in candidates]
        sources = [text for text, count in zip(texts, counts, strict=True) for _ in range(count)]
        targets = [one.text for translations in candidates for one in translations]
        scores = iter(rescorer.scores(sources, targets))
        for translations in candidates:
            rescored = [replace(one, score=next(scores)) for one in translations]
            yield sorted(rescored, key=lambda one: -one.score)

    def _search(self, texts: Sequence[str], first: int, options: SearchOptions, check: Check) -> Iterator[Ready]:
        device = next(self.model.parameters()).device
        encoded, vocabularies = self._encode_all(texts, options.protect)
        tags = len(self.tag_ids())
        empty = np.array(
            [len(ids) == tags or not text.strip() for ids, text in zip(encoded, texts, strict=True)], dtype=np.bool_
        )
        if empty.any():
            yield [(number, [Translation("", 0.0)]) for number in np.flatnonzero(empty).tolist()]
        most = self._longest_source(options)
        for number in np.flatnonzero(~empty):
            if len(encoded[number]) > most:
                length = len(encoded[number])
                self.warn(f"line {first + number} has {length} tokens; only the first {most} are translated")
                encoded[number] = encoded[number][:most]
        lengths = np.where(empty, 0, [len(ids) + 1 for ids in encoded])
        batches = batches_by_length(lengths, max(1, options.tokens // options.beam))
        sources = [
            partial(Ragged.from_lists, [[*encoded[number], EOS] for number in batch], device) for batch in batches
        ]
        demands = [self.demands([(encoded[number], vocabularies[number]) for number in batch]) for batch in batches]
        if self.model.non_autoregressive:
            demands = []
        for batch, results in search_all(self.model, sources, options=options, demands=demands, check=check):
            found = [(batches[batch][sentence], best) for sentence, best in results]
            yield [
                (number, [self._translation(texts[number], vocabularies[number], one, options) for one in best])
                for number, best in found
            ]

    def _translation(
        self, text: str, vocabulary: ExtendedVocabulary, found: Hypothesis, options: SearchOptions
    ) -> Translation:
        output = vocabulary.decode(found.ids)
        reported = options.protect or (options.protect is None and self._symbols is not None)
        return Translation(output, found.score, tuple(lost_spans(text, output)) if reported else ())

    def _encode_all(
        self, texts: Sequence[str], protect: bool | None
    ) -> tuple[list[list[int]], list[ExtendedVocabulary]]:
        """Return the ids of all texts, and the vocabularies of their outputs."""
        if self.model.copies:
            extended = [self.encode(text) for text in texts]
            return [ids for ids, _ in extended], [vocabulary for _, vocabulary in extended]
        tags, masks = self.tag_ids(), [self._mask(text, protect) for text in texts]
        shown = [text if masked is None else masked.text for text, masked in zip(texts, masks, strict=True)]
        encoded = self.tokenizers.source.encode_all(shown)
        return (
            [[*tags, *ids] for ids in encoded] if tags else encoded,
            [ExtendedVocabulary(self.tokenizers.target, masked=masked) for masked in masks],
        )

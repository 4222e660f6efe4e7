"""Translation of texts: batched by length, and returned in the order of the input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

from regard.config import SearchOptions
from regard.data.batch_sampler import batches_by_length
from regard.data.ragged import Ragged
from regard.decoding.ranking import Check, never_stop
from regard.decoding.rescorer import Rescorer
from regard.decoding.search import search_all
from regard.messages import warn_caller
from regard.models.base import Model
from regard.text.inputs import as_texts, refuse_no_list, refuse_other_types
from regard.text.tokenizer import EOS, Tokenizers
from regard.text.unknown_words import ExtendedVocabulary, extend

READ_AHEAD = 4096  # lines that are read, sorted by length and translated together


@dataclass(frozen=True)
class Translation:
    """A translation of a text, and its score."""

    text: str
    score: float


Ready = list[tuple[int, list[Translation]]]  # the index of a text, and its translations


class Translator:
    """A model with its tokenizers.

    A search takes the options that it is not given from `options`. `warn` receives a message for every source that is cut;
    by default it is a `RegardWarning` of Python's warnings.
    """

    def __init__(
        self,
        model: Model,
        tokenizers: Tokenizers,
        options: SearchOptions,
        *,
        warn: Callable[[str], None] = warn_caller,
        rescorer: Rescorer | None = None,
    ) -> None:
        self.model, self.tokenizers, self.warn, self.rescorer = model, tokenizers, warn, rescorer
        self.options = SearchOptions().with_given(options)

    @property
    def longest_source(self) -> int:
        """The most tokens of a source that are translated, EOS not counted."""
        return self._longest_source(self.options)

    def _longest_source(self, options: SearchOptions) -> int:
        # EOS needs a position too.
        return (
            options.max_source if self.model.max_length is None else min(options.max_source, self.model.max_length - 1)
        )

    def encode(self, text: str) -> tuple[list[int], ExtendedVocabulary]:
        """Return the ids of a source, without EOS, and the vocabulary of its output: with words that may be copied."""
        if self.model.copies:
            return extend(self.tokenizers.source, text)
        return self.tokenizers.source.encode(text), ExtendedVocabulary(self.tokenizers.target, ())

    def translate(self, texts: Sequence[str], *, options: SearchOptions | None = None) -> list[str]:
        """Return the best translation of each text."""
        texts = as_texts(texts, call="translate()")
        options = self.options.with_given(options).replace(scores=False)
        return [best[0].text for best in self.stream(texts, options=options)]

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
            rescored = [Translation(one.text, next(scores)) for one in translations]
            yield sorted(rescored, key=lambda one: -one.score)

    def _search(self, texts: Sequence[str], first: int, options: SearchOptions, check: Check) -> Iterator[Ready]:
        device = next(self.model.parameters()).device
        encoded, decode = self._encode_all(texts)
        empty = np.array(
            [not ids or not text.strip() for ids, text in zip(encoded, texts, strict=True)], dtype=np.bool_
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
        for batch, results in search_all(self.model, sources, options=options, check=check):
            found = [(batches[batch][sentence], best) for sentence, best in results]
            yield [
                (number, [Translation(decode(number, one.ids), one.score) for one in best]) for number, best in found
            ]

    def _encode_all(self, texts: Sequence[str]) -> tuple[list[list[int]], Callable[[int, Sequence[int]], str]]:
        """Return the ids of all texts, and a function from the number of a text and the ids of its output to the output."""
        if not self.model.copies:
            target = self.tokenizers.target
            return self.tokenizers.source.encode_all(texts), lambda number, ids: target.decode(ids)
        extended = [self.encode(text) for text in texts]
        return [ids for ids, _ in extended], lambda number, ids: extended[number][1].decode(ids)

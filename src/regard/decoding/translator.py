"""Texts in, texts out: in the order given, whatever order they were computed in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from regard.data.batching import cut_to_budget
from regard.data.ragged import Ragged
from regard.decoding.hypotheses import Check, SearchOptions, never_stop
from regard.decoding.rescorer import Rescorer
from regard.decoding.search import search_all
from regard.errors import DecodeError
from regard.models.base import Model
from regard.text.tokenizer import EOS, Tokenizers

READ_AHEAD = 4096  # lines sorted by length together


@dataclass(frozen=True)
class Translation:
    """One way to say it, and its score."""

    text: str
    score: float


Ready = list[tuple[int, list[Translation]]]  # texts by their numbers, and the translations of each


class Translator:
    """A model with its tokenizers. `warn` hears of sources that had to be cut."""

    def __init__(
        self,
        model: Model,
        tokenizers: Tokenizers,
        config: SearchOptions,
        *,
        warn: Callable[[str], None] = lambda text: None,
        rescorer: Rescorer | None = None,
    ) -> None:
        self.model, self.tokenizers, self.config, self.warn = model, tokenizers, config, warn
        self.rescorer = rescorer

    @property
    def longest_source(self) -> int:
        """The most tokens of a source that are translated, EOS not counted."""
        return self._longest_source(self.config)

    def _longest_source(self, options: SearchOptions) -> int:
        # EOS needs a position too.
        return (
            options.max_source if self.model.max_length is None else min(options.max_source, self.model.max_length - 1)
        )

    def translate(self, texts: Sequence[str], *, options: SearchOptions | None = None) -> list[str]:
        """The best translation of each text."""
        if isinstance(texts, str):
            raise DecodeError("translate() takes a list of texts; put the one text into brackets")
        options = (options or self.config).replace(scores=False)
        return [best[0].text for best in self.stream(texts, options=options)]

    def predict(self, inputs: Sequence[str], *, options: SearchOptions | None = None) -> list[str]:
        """Return the best translation of each text: what any task's model in use can do."""
        return self.translate(inputs, options=options)

    def stream(
        self, texts: Iterable[str], *, options: SearchOptions | None = None, first: int = 1
    ) -> Iterator[list[Translation]]:
        """The n best translations of each text, in order, as they become ready; an empty text gives an empty one.

        `first` is the line number that warnings give to the first text.
        """
        lines = iter(texts)
        while chunk := list(islice(lines, READ_AHEAD)):
            found = {number: best for some in self.each(chunk, options=options, first=first) for number, best in some}
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
        """As `stream`, but each text's translations as soon as they are there, by its number; not in order.

        Rescored and non-autoregressive outputs arrive together, at the end. See `search_each`, also for `check`.
        """
        options = options or self.config
        if self.rescorer is None:
            yield from self._search(texts, first, options, check)
            return
        candidates = self._search(texts, first, options.replace(nbest=options.beam), check)
        found = sorted(
            (number, best) for some in candidates for number, best in some
        )  # the rescorer's batches depend on it
        rescored = self._rescored([texts[number] for number, _ in found], [best for _, best in found], self.rescorer)
        yield [(number, best[: options.nbest]) for (number, _), best in zip(found, rescored, strict=True)]

    def _rescored(
        self, texts: Sequence[str], found: list[list[Translation]], rescorer: Rescorer
    ) -> Iterator[list[Translation]]:
        """The translations of each text as the rescorer scores them, best first."""
        counts = [len(translations) for translations in found]
        sources = [text for text, count in zip(texts, counts, strict=True) for _ in range(count)]
        targets = [one.text for translations in found for one in translations]
        scores = iter(rescorer.scores(sources, targets))
        for translations in found:
            rescored = [Translation(one.text, next(scores)) for one in translations]
            yield sorted(rescored, key=lambda one: -one.score)

    def _search(self, texts: Sequence[str], first: int, options: SearchOptions, check: Check) -> Iterator[Ready]:
        device = next(self.model.parameters()).device
        encoded = self.tokenizers.source.encode_all(texts)
        there = np.array([bool(ids and text.strip()) for ids, text in zip(encoded, texts, strict=True)], dtype=np.bool_)
        wanted = np.flatnonzero(there)
        if not there.all():
            yield [(number, [Translation("", 0.0)]) for number in np.flatnonzero(~there).tolist()]
        most = self._longest_source(options)
        for number in wanted:
            if len(encoded[number]) > most:
                length = len(encoded[number])
                self.warn(f"line {first + number} has {length} tokens; only the first {most} are translated")
                encoded[number] = encoded[number][:most]
        lengths = np.array([len(ids) + 1 for ids in encoded], dtype=np.int64)
        order = wanted[np.argsort(-lengths[wanted], kind="stable")]
        batches = cut_to_budget(order, (lengths,), max(1, options.tokens // options.beam))
        sources = [Ragged.from_lists([[*encoded[number], EOS] for number in batch], device) for batch in batches]
        decode = self.tokenizers.target.decode
        for batch, found in search_all(self.model, sources, options=options, check=check):
            if any(not best or math.isnan(best[0].score) for _, best in found):
                raise DecodeError("the model's scores are not finite; its weights are damaged, or it has diverged")
            yield [
                (int(batches[batch][sentence]), [Translation(decode(one.ids), one.score) for one in best])
                for sentence, best in found
            ]

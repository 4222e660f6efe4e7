"""Models in use, for any task: inputs in batches of similar length, outputs in the order of the inputs.

A task says how one input is encoded, and how the outputs of a batch are computed (`BatchPredictor`) or how its sources and
ids are read where outputs are searched for (`SearchPredictor`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence, Sized
from functools import partial
from typing import ClassVar, Generic, TypeVar

import torch

from regard.config import SearchOptions
from regard.data.budget import batches_by_length
from regard.data.ragged import Ragged
from regard.decoding.search import search_all
from regard.errors import ConfigError, DecodeError
from regard.models.base import Model, Seq2Seq
from regard.run.folder import Codec
from regard.text.inputs import as_texts

M = TypeVar("M", bound=Model)
S = TypeVar("S", bound=Seq2Seq)
C = TypeVar("C", bound=Codec)
E = TypeVar("E", bound=Sized)  # an encoded input, whose length counts against the token budget; 0: it is empty


Warn = Callable[[str], None]


def ignore(text: str) -> None:
    """Drop a warning."""


class BatchPredictor(ABC, Generic[M, C, E]):
    """A model with its codec: lines of text in, lines of text out. `warn` receives a message for each input that is cut."""

    needs: ClassVar[type[Model]]  # the class of its models
    counts: ClassVar[str] = "tokens"  # what the length of an input counts
    if_empty: ClassVar[str] = "the text is empty; give one with words in it"
    added: ClassVar[int] = 0  # positions of the model that an input cannot use, such as that of EOS

    def __init__(self, model: Model, codec: C, options: SearchOptions, warn: Warn = ignore) -> None:
        if not isinstance(model, self.needs):
            raise ConfigError(
                f"this task needs a model of the class {self.needs.__name__}, and {type(model).__name__} is not one"
            )
        self.model: M = model  # type: ignore[assignment]  # `needs` is M
        self.codec, self.warn, self.options = codec, warn, SearchOptions().with_given(options)
        most = self.options.max_source
        self.limit = most if model.max_length is None else min(most, model.max_length - self.added)  # of an input

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    # What a task says

    @abstractmethod
    def encode(self, text: str) -> E:
        """Return one input as the model reads it; of length 0 if it has no output."""

    @abstractmethod
    def cut(self, one: E) -> E:
        """Return an input that is too long as one that is not."""

    def kept(self, one: E) -> str:
        """Return what `cut` keeps of an input, for a warning."""
        return f"the first {self.limit}"

    @abstractmethod
    def outputs(self, batch: Sequence[E], options: SearchOptions) -> list[str]:
        """Return the output of each input of a batch."""

    # What follows

    def predict(self, inputs: Sequence[str], *, options: SearchOptions | None = None) -> list[str]:
        """Return the output for each input; that for an empty one is empty. An input of more than `limit` tokens is cut.

        Options that are not given are those of the recipe. Tasks that do not search use only `tokens`.
        """
        encoded = self.encode_all(inputs, call="predict()")
        outputs = [""] * len(encoded)
        for row, text in self.each(encoded, self.options.with_given(options)):
            outputs[row] = text
        return outputs

    def encode_all(self, inputs: Sequence[str], *, call: str) -> list[E]:
        """Return all inputs, cut to `limit`, with a warning for each that is cut."""
        encoded = [self.encode(text) for text in as_texts(inputs, call=call)]
        for number, one in enumerate(encoded):
            if len(one) > self.limit:
                counts = f"{len(one)} {self.counts}"
                self.warn(f"line {number + 1} has {counts}; only {self.kept(one)} are used")
                encoded[number] = self.cut(one)
        return encoded

    def encode_one(self, text: str) -> E:
        """Return the input that `look` shows. Raise DecodeError if it is empty or would be cut."""
        one = self.encode(text)
        if not len(one):
            raise DecodeError(self.if_empty)
        if len(one) > self.limit:
            raise DecodeError(f"the input has {len(one)} {self.counts}; this model takes at most {self.limit}")
        return one

    def batches(self, encoded: Sequence[E], options: SearchOptions) -> list[list[int]]:
        """Return the rows of each batch, longest inputs first, without empty ones."""
        return batches_by_length([len(one) for one in encoded], options.tokens)

    @torch.inference_mode()
    def each(self, encoded: Sequence[E], options: SearchOptions) -> Iterator[tuple[int, str]]:
        """Yield the row of each input that is not empty, and its output, in any order."""
        for rows in self.batches(encoded, options):
            yield from zip(rows, self.outputs([encoded[row] for row in rows], options), strict=True)


class SearchPredictor(BatchPredictor[S, C, E]):
    """A model whose outputs are searched for. Batches are made when it is their turn, so only a few are on the device."""

    @abstractmethod
    def source(self, batch: Sequence[E]) -> Ragged:
        """Return the source of a batch, on the device of the model."""

    @abstractmethod
    def text(self, ids: Sequence[int]) -> str:
        """Return the output of these ids."""

    def batches(self, encoded: Sequence[E], options: SearchOptions) -> list[list[int]]:
        return batches_by_length([len(one) for one in encoded], max(1, options.tokens // options.beam))

    def outputs(self, batch: Sequence[E], options: SearchOptions) -> list[str]:
        found = dict(self.each(batch, options))
        return [found.get(row, "") for row in range(len(batch))]

    def each(self, encoded: Sequence[E], options: SearchOptions) -> Iterator[tuple[int, str]]:
        if options.mbr is not None or options.coverage_penalty:
            raise DecodeError("mbr and coverage_penalty choose among translations; this task has none: leave them out")
        batches = self.batches(encoded, options)
        sources = [partial(self.source, [encoded[row] for row in rows]) for rows in batches]
        for number, results in search_all(self.model, sources, options=options):
            for sentence, best in results:
                yield batches[number][sentence], self.text(best[0].ids)

"""What the server has to do for a request: sentences to translate, or one sentence to look at or to stream."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from regard.decoding.hypotheses import SearchOptions

Kind = Literal["translate", "look", "stream"]
_numbers = itertools.count()


@dataclass(frozen=True)
class Sentence:
    """A source text, and what it costs at worst."""

    text: str
    cost: int


def ignore(partial: str) -> None:
    """For requests that want only the result."""


@dataclass(eq=False)
class Work:
    """The sentences of one request, and the future of its result."""

    client: str
    model: str
    options: SearchOptions
    sentences: Sequence[Sentence]
    deadline: float  # by time.monotonic
    kind: Kind = "translate"
    arguments: dict[str, Any] = field(default_factory=dict)  # of a look
    on_partial: Callable[[str], None] = ignore  # receives the text so far of a stream, on a thread of ours
    number: int = field(default_factory=lambda: next(_numbers))
    future: Future[list[Any]] = field(default_factory=Future)
    found: dict[int, Any] = field(default_factory=dict)  # results, by the sentence's number

    def __post_init__(self) -> None:
        self.cost = sum(one.cost for one in self.sentences)

    @property
    def done(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.future.done()

    def deliver(self, number: int, result: Any) -> None:
        """The result of one sentence; with the last one the future is done."""
        self.found[number] = result
        if len(self.found) == len(self.sentences):
            with suppress(InvalidStateError):  # it was cancelled meanwhile
                self.future.set_result([self.found[one] for one in range(len(self.sentences))])

    def fail(self, error: Exception) -> None:
        """The request gets this error, unless it has its result already."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


@dataclass(eq=False)
class Item:
    """One sentence of a request, on its way through the queue and a worker."""

    work: Work
    number: int  # of the sentence in the request
    failures: int = 0  # workers that ended while they had it
    preemptions: int = 0  # times that it was stopped for shorter ones

    @property
    def text(self) -> str:
        return self.work.sentences[self.number].text

    @property
    def cost(self) -> int:
        return self.work.sentences[self.number].cost

    @property
    def group(self) -> Hashable:
        """Items of the same group can be translated in one batch."""
        if self.work.kind != "translate":
            return self.work.number
        return self.work.model, self.work.options, self.failures

"""Jobs: the sentences of one request, to translate, to trace (look) or to stream, and the future of the result."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from regard.decoding.hypotheses import SearchOptions

JobKind = Literal["translate", "look", "stream"]
_numbers = itertools.count()


@dataclass(frozen=True)
class Sentence:
    """A source sentence and its worst-case cost."""

    text: str
    cost: int


def ignore_partial(text: str) -> None:
    """Ignore partial results."""


@dataclass(eq=False)
class TranslationJob:
    """The sentences of one request, and the future of its result."""

    client: str
    model: str
    options: SearchOptions
    sentences: Sequence[Sentence]
    deadline: float  # by time.monotonic
    kind: JobKind = "translate"
    arguments: dict[str, Any] = field(default_factory=dict)  # of a look
    on_partial: Callable[[str], None] = ignore_partial  # gets the text so far of a stream, on an executor's thread
    number: int = field(default_factory=lambda: next(_numbers))
    future: Future[list[Any]] = field(default_factory=Future)
    results: dict[int, Any] = field(default_factory=dict)  # by sentence number

    def __post_init__(self) -> None:
        self.cost = sum(one.cost for one in self.sentences)

    @property
    def done(self) -> bool:
        """Whether the job has its result, has failed or was cancelled."""
        return self.future.done()

    def deliver(self, number: int, result: Any) -> None:
        """Store the result of one sentence; complete the future with the last one."""
        self.results[number] = result
        if len(self.results) == len(self.sentences):
            with suppress(InvalidStateError):  # cancelled in the meantime
                self.future.set_result([self.results[one] for one in range(len(self.sentences))])

    def fail(self, error: Exception) -> None:
        """Complete the future with this error, unless it is complete already."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


@dataclass(eq=False)
class QueueItem:
    """One sentence of a job, on its way through the queue and a worker."""

    job: TranslationJob
    number: int  # of the sentence in the job
    failures: int = 0  # workers that failed while they translated it
    preemptions: int = 0  # times that it was stopped in favour of shorter items

    @property
    def text(self) -> str:
        return self.job.sentences[self.number].text

    @property
    def cost(self) -> int:
        return self.job.sentences[self.number].cost

    @property
    def group(self) -> Hashable:
        """Items with equal groups can be translated in one batch."""
        if self.job.kind != "translate":
            return self.job.number
        return self.job.model, self.job.options, self.failures

"""Requests of many clients translated together: those that wait are taken in batches, each by one of a few lanes."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from regard.decoding.hypotheses import SearchOptions
from regard.decoding.translator import Ready, Translation
from regard.serve.limits import Limits

FEWEST = 8  # sentences that are not shared among lanes: a step costs almost the same for fewer

# A lane: the translations of some sentences by a model as they become ready, from a worker process, or from this one.
Lane = Callable[[str, list[str], SearchOptions], Iterator[Ready]]


class QueueFull(Exception):
    """Too much is waiting already."""


class Closed(Exception):
    """The engine takes nothing more."""


@dataclass
class Job:
    """Some sentences of one request, or a call that the engine is to make for it."""

    model: str
    sentences: list[str]
    options: SearchOptions | None
    call: Callable[[], Any] | None = None
    future: Future[Any] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)
    found: dict[int, list[Translation]] = field(default_factory=dict)  # by the sentence's number

    def take(self, number: int, best: list[Translation]) -> None:
        """A sentence's translations; who waits for them all has them with the last."""
        self.found[number] = best
        if len(self.found) == len(self.sentences):
            self.future.set_result([self.found[number] for number in range(len(self.sentences))])

    @cached_property
    def length(self) -> int:
        """Characters of the longest sentence: those of like length are done after as many steps."""
        return max(map(len, self.sentences))

    def goes_with(self, other: Job) -> bool:
        return self.call is None and (self.model, self.options) == (other.model, other.options)


class Engine:
    """What waits, and a thread for each lane."""

    def __init__(self, lanes: Sequence[Lane], limits: Limits) -> None:
        self.limits = limits
        self.waiting: deque[Job] = deque()
        self.queued, self.taken = 0, 0  # sentences that wait, and that are being translated
        self.batches, self.translated = 0, 0
        self._changed = threading.Condition()
        self._closed, self._idle = False, 0
        self._threads = [
            threading.Thread(target=self._work, args=(lane,), name=f"translate-{number}")
            for number, lane in enumerate(lanes)
        ]
        for thread in self._threads:
            thread.start()

    # Called by requests

    def submit(
        self, model: str, sentences: Sequence[str], options: SearchOptions
    ) -> list[Future[list[list[Translation]]]]:
        """The translations to come, for a batch of sentences each."""
        size = self.limits.batch_sentences
        jobs = [Job(model, list(sentences[at : at + size]), options) for at in range(0, len(sentences), size)]
        self._queue(jobs)
        return [job.future for job in jobs]

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """What a function will give; it is called by a thread of ours."""
        job = Job("", [""], None, function)
        self._queue([job])
        return job.future

    def _queue(self, jobs: list[Job]) -> None:
        count = sum(len(job.sentences) for job in jobs)
        with self._changed:
            if self._closed:
                raise Closed
            if self.queued + count > self.limits.queued_sentences:
                raise QueueFull
            self.waiting.extend(jobs)
            self.queued += count
            self._changed.notify_all()

    def close(self) -> None:
        """Finishes what was taken, and ends."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    # The threads

    def _work(self, lane: Lane) -> None:
        torch.set_num_threads(
            1
        )  # of what this process itself computes; a lane may be a process with as many as it likes
        while jobs := self._next():
            if jobs[0].call is not None:
                _answer(jobs[0].future, jobs[0].call)
                self._count(1)
            else:
                self._translate(jobs, lane)

    def _next(self) -> list[Job]:
        """Jobs that go together, as soon as there are enough or the first has waited; nothing at the end."""
        with self._changed:
            self._idle += 1
            try:
                while True:
                    while not self.waiting:
                        if self._closed:
                            return []
                        self._changed.wait()
                    self._wait_for_more()
                    if taken := self._take():
                        return taken
            finally:
                self._idle -= 1

    def _wait_for_more(self) -> None:
        """While sentences keep coming, until there are enough for a batch or the first has waited long enough."""
        while not self._closed and self.waiting and self.waiting[0].call is None:
            before = self.queued
            waited = time.monotonic() - self.waiting[0].since
            if before >= self.limits.batch_sentences or waited > self.limits.batch_wait:
                return
            self._changed.wait_for(lambda before=before: self.queued != before, self.limits.batch_gap)  # type: ignore[misc]
            if self.queued == before:
                return

    def _take(self) -> list[Job]:
        """The first job, and those nearest to it in length that ask the same: at most a batch, and a fair part of all."""
        while self.waiting and self.waiting[0].future.cancelled():
            self.queued -= len(self.waiting.popleft().sentences)
        if not self.waiting:
            return []
        lanes = len(self._threads)
        fair = (self.queued + self.taken) / lanes
        most = max(FEWEST, math.ceil(min(fair, self.queued / self._idle)))
        first = self.waiting.popleft()
        taken, room = [first], min(self.limits.batch_sentences, most) - len(first.sentences)
        for job in sorted(filter(first.goes_with, self.waiting), key=lambda job: abs(job.length - first.length)):
            if len(job.sentences) <= room:
                taken.append(job)
                room -= len(job.sentences)
        chosen = set(map(id, taken))
        self.waiting = deque(job for job in self.waiting if id(job) not in chosen)
        count = sum(len(job.sentences) for job in taken)
        self.queued, self.taken = self.queued - count, self.taken + count
        return taken

    def _translate(self, jobs: list[Job], lane: Lane) -> None:
        wanted = [job for job in jobs if job.future.set_running_or_notify_cancel()]
        places = [(job, number) for job in wanted for number in range(len(job.sentences))]
        left = sum(len(job.sentences) for job in jobs)
        try:
            if wanted and wanted[0].options is not None:
                sentences = [job.sentences[number] for job, number in places]
                for ready in lane(wanted[0].model, sentences, wanted[0].options):
                    left -= len(ready)
                    self._count(len(ready), translated=len(ready))
                    for place, best in ready:
                        job, number = places[place]
                        job.take(number, best)
                if not all(job.future.done() for job in wanted):
                    raise RuntimeError("a lane left sentences out")
                self._count(0, batches=1)
        except Exception as error:  # whatever it is, nobody is left waiting
            for job in wanted:
                if not job.future.done():
                    job.future.set_exception(error)
        self._count(left)

    def _count(self, taken: int, *, translated: int = 0, batches: int = 0) -> None:
        """So many fewer are being translated."""
        with self._changed:
            self.taken -= taken
            self.translated, self.batches = self.translated + translated, self.batches + batches


def _answer(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)

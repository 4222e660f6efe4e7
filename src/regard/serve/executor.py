"""An executor: a thread that runs batches on its own worker process and replaces the process when it fails.

A worker that computes with the engine runs several batches at once: their sentences share the steps of its searches.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from regard.decoding.translation import Confidence, ScoredToken, Translation, WordConfidence
from regard.errors import DecodeError
from regard.serve.fair_queue import QueueItem
from regard.serve.worker_process import WorkerFailed, WorkerProcess

POLL_SECONDS = 0.1  # between checks whether running batches are still wanted
IDLE_SECONDS = 0.5  # between checks of an idle worker
CANCEL_SECONDS = 5.0  # for a worker to stop a cancelled task
MAX_PAUSE = 10.0  # seconds before a worker that failed to load is started again


class TaskFailed(Exception):
    """A worker raised an error in a task; another worker would do the same."""


class BatchSource(Protocol):
    """Where executors get their batches and report what became of them. Workers are given by their numbers."""

    models: dict[str, int]

    def next_batch(self, worker: int) -> list[QueueItem] | None:
        """Return the items of one more batch; an empty list if there are none for this worker now, None when closed."""

    def items_done(self, worker: int, items: list[QueueItem]) -> None:
        """Record that items of a batch have got their results."""

    def batch_done(self, worker: int, items: list[QueueItem]) -> None:
        """Record the end of a batch."""

    def batch_not_started(self, worker: int, items: list[QueueItem]) -> None:
        """Take a batch back that the worker has not seen."""

    def should_preempt(self, items: list[QueueItem]) -> bool:
        """Return whether a batch is to be stopped in favour of shorter items."""

    def batch_preempted(self, worker: int, items: list[QueueItem], unfinished: list[QueueItem]) -> None:
        """Record that a batch was stopped in favour of shorter items."""

    def worker_failed(self, worker: int, unfinished: list[QueueItem]) -> None:
        """Take back what a worker was translating when it failed."""


@dataclass
class RunningBatch:
    """A batch that a worker has."""

    items: list[QueueItem]
    left: dict[int, QueueItem]  # the unfinished ones, by their places in the batch
    ends: float  # by time.monotonic
    cancelled: float | None = None  # when
    preempted: bool = False


class Executor:
    """The thread and its current worker process, which runs up to `tasks` batches at once."""

    def __init__(
        self,
        number: int,
        start: Callable[[], WorkerProcess],
        source: BatchSource,
        say: Callable[[str], None],
        *,
        tasks: int = 1,
    ) -> None:
        self.number, self.start, self.source, self.say, self.tasks = number, start, source, say, tasks
        self.worker = start()
        self.failures = 0  # workers that were replaced
        self._ids = itertools.count()
        self._running: dict[int, RunningBatch] = {}  # by the id of the task
        self._checked = 0.0  # when the running batches were checked
        self._woken = False  # since the last look for a batch
        self._closing = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"executor-{number}", daemon=True)
        self.thread.start()

    @property
    def ready(self) -> bool:
        return self.worker.is_ready

    def wake(self) -> None:
        """Let the thread look for a batch at once."""
        if not self._woken:
            self._woken = True
            self.worker.wake()

    def close(self, timeout: float) -> None:
        """End the thread and the process; takes about `timeout` seconds at most."""
        self._closing.set()
        self.thread.join(timeout)
        self.worker.kill()

    def _run(self) -> None:
        pause = 0.0
        while not self._closing.is_set():
            try:
                self._serve(self.worker)
                self.worker.close()
                return
            except Exception as failure:  # this thread must survive any error: only it starts this worker again
                self.failures += 1
                unfinished = [item for batch in self._running.values() for item in batch.left.values()]
                self._running.clear()
                self.source.worker_failed(self.number, unfinished)
                self.worker.kill()
                self.say(f"worker {self.number} (process {self.worker.process.pid}) {failure}; starting a new one")
                pause = 0.0 if self.worker.loaded else min(MAX_PAUSE, max(0.5, 2 * pause))
            self._restart(pause)

    def _restart(self, pause: float) -> None:
        while not self._closing.wait(pause):
            try:
                self.worker = self.start()
                return
            except OSError as error:  # out of memory, processes or descriptors
                self.say(f"worker {self.number} cannot be started ({error}); retrying")
                pause = MAX_PAUSE

    def _serve(self, worker: WorkerProcess) -> None:
        """Run batches until the source is closed; raise WorkerFailed if the worker fails."""
        while not worker.loaded:
            if self._closing.is_set():
                return
            worker.receive(POLL_SECONDS)
        while self._begin_batches(worker):
            message = worker.receive(POLL_SECONDS if self._running else IDLE_SECONDS)
            if message and message.get("id") in self._running:
                self._handle(message["id"], message)
            self._check(worker)

    def _begin_batches(self, worker: WorkerProcess) -> bool:
        """Send as many batches to the worker as it may have and the source has for it; return False if that is closed."""
        self._woken = False
        while len(self._running) < self.tasks:
            items = self.source.next_batch(self.number)
            if items is None:
                return False
            if not items:
                break
            if not worker.is_ready:  # it failed before it got these
                self.source.batch_not_started(self.number, items)
                raise WorkerFailed("ended")
            task, ends = next(self._ids), max(item.job.deadline for item in items)
            self._running[task] = RunningBatch(items, dict(enumerate(items)), ends)
            worker.send(self._message(task, items, ends))
        return True

    def _handle(self, task: int, message: dict[str, Any]) -> None:
        """Deliver the results in a message; end the batch if it is the last one."""
        batch, error = self._running[task], None
        try:
            self._deliver(message, batch)
            if "end" not in message:
                return
            error = _error(message["end"])
        except Exception as unexpected:  # every job must get an answer
            error = unexpected
        del self._running[task]
        unfinished = list(batch.left.values())
        if batch.preempted and unfinished:
            self.source.batch_preempted(self.number, batch.items, unfinished)
            return
        for item in unfinished:
            item.job.fail(error or TaskFailed("the worker returned no result for some sentences"))
        self.source.batch_done(self.number, batch.items)

    def _check(self, worker: WorkerProcess) -> None:
        """Cancel batches that are no longer wanted; raise WorkerFailed if the worker does not stop one."""
        now = time.monotonic()
        if now < self._checked + POLL_SECONDS:
            return
        self._checked = now
        for task, batch in self._running.items():
            if batch.cancelled is not None:
                if now > batch.cancelled + CANCEL_SECONDS:
                    raise WorkerFailed("did not stop a cancelled task")
                continue
            batch.preempted = self.source.should_preempt(batch.items)
            if batch.preempted or _abandoned(batch.left) or now > batch.ends:
                worker.send({"cancel": task})
                batch.cancelled = now

    def _message(self, task: int, items: list[QueueItem], ends: float) -> dict[str, Any]:
        job = items[0].job
        return {
            "id": task,
            "kind": job.kind,
            "model": self.source.models[job.model],
            "sentences": [item.input for item in items],
            "options": msgspec.structs.asdict(job.options),
            "arguments": job.arguments,
            "seconds": ends - time.monotonic(),
        }

    def _deliver(self, message: dict[str, Any], batch: RunningBatch) -> None:
        job = batch.items[0].job
        if "partial" in message:
            job.on_partial(message["partial"])
        done = []
        for place, result in message.get("ready", ()):
            item = batch.left.pop(place)
            found = [_translation(*one) for one in result] if job.kind == "translate" else result
            item.job.deliver(item.number, found)
            done.append(item)
        if done:
            self.source.items_done(self.number, done)


def _translation(
    text: str,
    score: float,
    lost: Sequence[str] = (),
    tokens: Sequence[tuple[str, float]] | None = None,
    confidence: tuple[float, Sequence[tuple[str, float]]] | None = None,
) -> Translation:
    return Translation(
        text,
        score,
        tuple(lost),
        None if tokens is None else tuple(ScoredToken(*one) for one in tokens),
        None if confidence is None else Confidence(confidence[0], tuple(WordConfidence(*one) for one in confidence[1])),
    )


def _abandoned(left: dict[int, QueueItem]) -> bool:
    """Return whether no job waits for the unfinished items any more."""
    return bool(left) and all(item.job.done for item in left.values())


def _error(end: dict[str, str] | None) -> Exception | None:
    """Return the error that a worker reported as an exception."""
    if end is None:
        return None
    if end["error"] in ("Cancelled", "DeadlineExceeded"):
        return TimeoutError(end["text"])
    return DecodeError(end["text"]) if end["kind"] == "mistake" else TaskFailed(f"{end['error']}: {end['text']}")

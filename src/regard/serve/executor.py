"""An executor: a thread that runs batches on its own worker process and replaces the process when it fails."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from regard.decoding.translation import Confidence, ScoredToken, Translation, WordConfidence
from regard.errors import DecodeError
from regard.serve.fair_queue import QueueItem
from regard.serve.lanes import Lane
from regard.serve.worker_process import WorkerFailed, WorkerProcess

POLL_SECONDS = 0.1  # between checks whether a running batch is still wanted
IDLE_SECONDS = 0.5  # between checks of an idle worker
CANCEL_SECONDS = 5.0  # for a worker to stop a cancelled task
MAX_PAUSE = 10.0  # seconds before a worker that failed to load is started again


class TaskFailed(Exception):
    """A worker raised an error in a task; another worker would do the same."""


class Preempted(Exception):
    """A task was stopped in favour of shorter ones."""


class BatchSource(Protocol):
    """Where an executor gets its batches and reports what became of them."""

    models: dict[str, int]

    def next_batch(self, timeout: float) -> list[QueueItem] | None:
        """Return the items of one batch; an empty list after the timeout, None when closed."""

    def batch_done(self, items: list[QueueItem], unfinished: list[QueueItem]) -> None:
        """Record the end of a batch; items are unfinished if the worker failed."""

    def batch_not_started(self, items: list[QueueItem]) -> None:
        """Take a batch back that no worker has seen."""

    def should_preempt(self, items: list[QueueItem]) -> bool:
        """Return whether a batch is to be stopped in favour of shorter items."""

    def batch_preempted(self, items: list[QueueItem], unfinished: list[QueueItem]) -> None:
        """Record that a batch was stopped in favour of shorter items."""

    def count_translated(self, sentences: int) -> None:
        """Count finished sentences."""


Worker = WorkerProcess | Lane


class Executor:
    """The thread and its current worker process."""

    def __init__(
        self, number: int, start: Callable[[], Worker], source: BatchSource, say: Callable[[str], None]
    ) -> None:
        self.number, self.start, self.source, self.say = number, start, source, say
        self.worker = start()
        self.failures = 0  # workers that were replaced
        self._ids = itertools.count()
        self._closing = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"executor-{number}", daemon=True)
        self.thread.start()

    @property
    def ready(self) -> bool:
        return self.worker.is_ready

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

    def _serve(self, worker: Worker) -> None:
        """Run batches until there are no more; raise WorkerFailed if the worker fails."""
        while not worker.loaded:
            if self._closing.is_set():
                return
            worker.receive(POLL_SECONDS)
        while (items := self.source.next_batch(IDLE_SECONDS)) is not None:
            if items and not worker.is_ready:  # it failed while it was idle, which is no fault of these
                self.source.batch_not_started(items)
                raise WorkerFailed("ended")
            if items:
                self._run_batch(worker, items)
            else:
                worker.receive(0)

    def _run_batch(self, worker: Worker, items: list[QueueItem]) -> None:
        left = dict(enumerate(items))
        try:
            error = self._exchange(worker, items, left)
        except WorkerFailed:
            self.source.batch_done(items, list(left.values()))
            raise
        except Preempted:
            self.source.batch_preempted(items, list(left.values()))
            return
        except Exception as unexpected:  # every job must get an answer
            error = unexpected
        for item in left.values():
            item.job.fail(error or TaskFailed("the worker returned no result for some sentences"))
        self.source.batch_done(items, [])

    def _exchange(self, worker: Worker, items: list[QueueItem], left: dict[int, QueueItem]) -> Exception | None:
        """Send a batch and deliver its results. Remove finished items from `left`; return the error of the task, if any."""
        task, ends = next(self._ids), max(item.job.deadline for item in items)
        worker.send(self._message(task, items, ends))
        cancelled: float | None = None
        preempted = False
        while True:
            message = worker.receive(POLL_SECONDS)
            if message and message.get("id") == task:
                if "end" in message:
                    if preempted and left:
                        raise Preempted
                    return _error(message["end"])
                self._deliver(message, items, left)
            now = time.monotonic()
            if cancelled is None:
                preempted = self.source.should_preempt(items)
            if cancelled is None and (preempted or _abandoned(left) or now > ends):
                worker.send({"cancel": task})
                cancelled = now
            if cancelled is not None and now > cancelled + CANCEL_SECONDS:
                raise WorkerFailed("did not stop a cancelled task")

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

    def _deliver(self, message: dict[str, Any], items: list[QueueItem], left: dict[int, QueueItem]) -> None:
        job = items[0].job
        if "partial" in message:
            job.on_partial(message["partial"])
            return
        for place, result in message["ready"]:
            item = left.pop(place)
            found = [_translation(*one) for one in result] if job.kind == "translate" else result
            item.job.deliver(item.number, found)
        self.source.count_translated(len(message["ready"]))


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

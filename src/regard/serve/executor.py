"""A thread of the server with a worker process of its own: gives it batches, and replaces it when it fails."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from regard.decoding.translator import Translation
from regard.errors import DecodeError
from regard.serve.work import Item
from regard.serve.worker_process import WorkerFailed, WorkerProcess

POLL_SECONDS = 0.1  # between two looks at whether a batch is still wanted
IDLE_SECONDS = 0.5  # between two looks at whether an idle worker still lives
CANCEL_SECONDS = 5.0  # that a worker may take to stop a task
LONGEST_PAUSE = 10.0  # before a worker that failed to load is started again


class TaskFailed(Exception):
    """A worker could not carry out a task; another would not either."""


class Preempted(Exception):
    """A task was stopped for shorter ones."""


class Source(Protocol):
    """Where an executor's batches come from, and what it reports."""

    models: dict[str, int]

    def next_batch(self, timeout: float) -> list[Item] | None:
        """Items for one batch; none if there were none in time; None at the end."""

    def ended(self, items: list[Item], unfinished: list[Item]) -> None:
        """A batch is over; some items may not be finished because their worker failed."""

    def should_yield(self, items: list[Item]) -> bool:
        """Whether a batch is to be stopped for shorter ones."""

    def preempted(self, items: list[Item], unfinished: list[Item]) -> None:
        """A batch was stopped for shorter ones."""

    def translated(self, count: int) -> None:
        """So many sentences are done."""


class Executor:
    """The thread, and the process that it has now."""

    def __init__(
        self, number: int, start: Callable[[], WorkerProcess], source: Source, say: Callable[[str], None]
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
        return self.worker.reacts

    def close(self, timeout: float) -> None:
        """End thread and process, within about the given time."""
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
            except Exception as failure:  # whatever it is, this thread must survive: nobody else starts workers
                self.failures += 1
                self.worker.kill()
                self.say(f"worker {self.number} (process {self.worker.process.pid}) {failure}; starting another")
                pause = 0.0 if self.worker.loaded else min(LONGEST_PAUSE, max(0.5, 2 * pause))
            self._start_another(pause)

    def _start_another(self, pause: float) -> None:
        while not self._closing.wait(pause):
            try:
                self.worker = self.start()
                return
            except OSError as error:  # no memory, processes or descriptors are left for now
                self.say(f"worker {self.number} cannot be started ({error}); trying again")
                pause = LONGEST_PAUSE

    def _serve(self, worker: WorkerProcess) -> None:
        """Give it batches until there are no more; raises `WorkerFailed`."""
        while not worker.loaded:
            if self._closing.is_set():
                return
            worker.receive(POLL_SECONDS)
        while (items := self.source.next_batch(IDLE_SECONDS)) is not None:
            if items:
                self._run_batch(worker, items)
            else:
                worker.receive(0)

    def _run_batch(self, worker: WorkerProcess, items: list[Item]) -> None:
        left = dict(enumerate(items))
        try:
            end = self._converse(worker, items, left)
        except WorkerFailed:
            self.source.ended(items, list(left.values()))
            raise
        except Preempted:
            self.source.preempted(items, list(left.values()))
            return
        except Exception as error:  # whatever it is, nobody is left waiting
            end = error
        for item in left.values():
            item.work.fail(end or TaskFailed("the worker left sentences out"))
        self.source.ended(items, [])

    def _converse(self, worker: WorkerProcess, items: list[Item], left: dict[int, Item]) -> Exception | None:
        """Have a batch translated and deliver the results, which leave `left`; the error if there was one."""
        task, ends = next(self._ids), max(item.work.deadline for item in items)
        worker.send(self._message(task, items, ends))
        cancelled: float | None = None
        yielding = False
        while True:
            message = worker.receive(POLL_SECONDS)
            if message and message.get("id") == task:
                if "end" in message:
                    if yielding and left:
                        raise Preempted
                    return _error(message["end"])
                self._deliver(message, items, left)
            now = time.monotonic()
            if cancelled is None:
                yielding = self.source.should_yield(items)
            if cancelled is None and (yielding or _abandoned(left) or now > ends):
                worker.send({"cancel": task})
                cancelled = now
            if cancelled is not None and now > cancelled + CANCEL_SECONDS:
                raise WorkerFailed("does not stop a task that was cancelled")

    def _message(self, task: int, items: list[Item], ends: float) -> dict[str, Any]:
        work = items[0].work
        return {
            "id": task,
            "kind": work.kind,
            "model": self.source.models[work.model],
            "sentences": [item.text for item in items],
            "options": msgspec.structs.asdict(work.options),
            "arguments": work.arguments,
            "seconds": ends - time.monotonic(),
        }

    def _deliver(self, message: dict[str, Any], items: list[Item], left: dict[int, Item]) -> None:
        work = items[0].work
        if "partial" in message:
            work.on_partial(message["partial"])
            return
        for place, result in message["ready"]:
            item = left.pop(place)
            found = [Translation(*one) for one in result] if work.kind == "translate" else result
            item.work.deliver(item.number, found)
        self.source.translated(len(message["ready"]))


def _abandoned(left: dict[int, Item]) -> bool:
    """Whether nobody waits for what is left of a batch."""
    return bool(left) and all(item.work.done for item in left.values())


def _error(end: dict[str, str] | None) -> Exception | None:
    """What a worker says was wrong, as an exception."""
    if end is None:
        return None
    if end["error"] in ("Cancelled", "DeadlineExceeded"):
        return TimeoutError(end["text"])
    return DecodeError(end["text"]) if end["kind"] == "mistake" else TaskFailed(f"{end['error']}: {end['text']}")

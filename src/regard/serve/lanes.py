"""Several executors on one worker process.

A worker that computes with the engine runs several tasks at once: sentences of a new task join the batch of the others at
the next step. Each lane of the process is a worker to its executor.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from regard.serve.worker_process import WorkerFailed, WorkerProcess

POLL_SECONDS = 0.2  # between checks of a process that sends nothing


class SharedProcess:
    """A process, the messages of which go to its lanes."""

    def __init__(self, process: WorkerProcess, lanes: int) -> None:
        self.process, self.lanes = process, lanes
        self.free = list(range(lanes))
        self.lock = threading.Lock()
        self.open = 0  # lanes that are in use
        self.failure: str | None = None
        self.received: list[SimpleQueue[dict[str, Any] | None]] = [
            SimpleQueue() for _ in range(lanes)
        ]  # None: it failed
        threading.Thread(target=self._route, name="lanes", daemon=True).start()

    def _route(self) -> None:
        while True:
            try:
                message = self.process.receive(POLL_SECONDS)
            except WorkerFailed as failure:
                self.failure = str(failure)
                for queue in self.received:
                    queue.put(None)
                return
            if message and "id" in message:
                number, lane = divmod(message["id"], self.lanes)
                self.received[lane].put({**message, "id": number})


class Lane:
    """One of several tasks of a process, as an executor uses a `WorkerProcess`."""

    def __init__(self, shared: SharedProcess, number: int) -> None:
        self.shared, self.number, self.process = shared, number, shared.process.process

    @property
    def loaded(self) -> bool:
        return self.shared.process.loaded

    @property
    def is_ready(self) -> bool:
        return self.shared.failure is None and self.shared.process.is_ready

    def send(self, message: dict[str, Any]) -> None:
        """Send a message without blocking. Tasks of all lanes have ids of their own in the process."""
        key = "id" if "id" in message else "cancel"
        self.shared.process.send({**message, key: message[key] * self.shared.lanes + self.number})

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """Return the next message, or None after the timeout; raise WorkerFailed if the process has failed."""
        ends = time.monotonic() + timeout
        while True:
            if self.shared.failure is not None:
                raise WorkerFailed(self.shared.failure)
            try:
                message = self.shared.received[self.number].get(timeout=max(0.0, ends - time.monotonic()))
            except Empty:
                return None
            if message is not None:
                return message

    def kill(self) -> None:
        """Kill the process, and with it all of its lanes."""
        self.shared.failure = self.shared.failure or "ended"
        self.shared.process.kill()

    def close(self) -> None:
        """End the process with its last lane."""
        with self.shared.lock:
            self.shared.open -= 1
            last = self.shared.open == 0
        if last:
            self.shared.process.close()


class LaneStarter:
    """Gives each executor a lane: of a process that has one free, or of a new process."""

    def __init__(self, start: Callable[[], WorkerProcess], lanes: int) -> None:
        self.start, self.lanes = start, lanes
        self._lock = threading.Lock()
        self._newest: SharedProcess | None = None

    def __call__(self) -> Lane:
        with self._lock:
            shared = self._newest
            if shared is None or not shared.free or shared.failure is not None:
                shared = self._newest = SharedProcess(self.start(), self.lanes)
            with shared.lock:
                shared.open += 1
            return Lane(shared, shared.free.pop(0))

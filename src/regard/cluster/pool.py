"""Workers on a Ray cluster: each has one shard at a time, and what a dead one held is given to another."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

from regard.cluster.formats import Chunk
from regard.cluster.source import TextShard
from regard.cluster.worker import Answer, PackedModel, Worker
from regard.decoding.hypotheses import SearchOptions
from regard.errors import ConfigError, DecodeError, RegardError, require

MOST_TRIES = 4  # of one shard, or of starting a worker with none succeeding between
ROOM_SECONDS = 60.0  # without any sign of a worker, before that is mentioned


class Job(NamedTuple):
    """A shard, its text, and how often it was begun."""

    shard: TextShard
    chunk: Chunk
    tries: int = 0


class Queue:
    """Jobs to hand out: those to do again first, then the others as they are read. None any more after a failure."""

    def __init__(self, jobs: Iterator[tuple[TextShard, Chunk]]) -> None:
        self.jobs = jobs
        self.ahead: deque[Job] = deque()
        self.failure: RegardError | None = None

    @property
    def left(self) -> bool:
        if not self.ahead and self.failure is None:
            try:
                self.ahead.extend(Job(*pair) for pair in islice(self.jobs, 1))
            except RegardError as error:
                self.stop(error)
        return bool(self.ahead)

    def stop(self, failure: RegardError) -> None:
        """Hands out nothing more; the first failure is the one that is told."""
        self.failure = self.failure or failure
        self.ahead.clear()

    def put_back(self, job: Job, error: Exception) -> None:
        """To be done again, unless that was tried often enough."""
        if job.tries >= MOST_TRIES:
            self.stop(DecodeError(f"{job.shard} failed {job.tries} times, the last time so: {_first_line(error)}"))
        elif self.failure is None:
            self.ahead.appendleft(job)


@contextmanager
def connected() -> Iterator[Any]:
    """Ray itself, connected to the cluster that RAY_ADDRESS or `ray start` offers, or else to a Ray of our own."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # spares a warning about a default to come
    terminated = signal.getsignal(signal.SIGTERM)
    ray = require("ray", extra="ray")
    if ray.is_initialized():  # by the program that calls us: it is not ours to end
        yield ray
        return
    _refuse_silent(os.environ.get("RAY_ADDRESS", ""))
    try:
        ray.init(include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, ray.exceptions.RayError) as error:
        raise ConfigError(
            f"the Ray cluster does not let us in ({_first_line(error)}); if it asks for a token, set it up for this "
            "machine as Ray's manual says, or unset RAY_ADDRESS to use a Ray of this machine"
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, terminated)  # Ray's own handler exits with 15, which names no signal to anybody
    try:
        yield ray
    finally:
        ray.shutdown()


class Pool:
    """Workers, as many as the cluster finds room for. `on_worker` hears of each that is ready."""

    def __init__(
        self,
        ray: Any,
        model: PackedModel,
        options: SearchOptions,
        *,
        device: str,
        threads: int,
        on_worker: Callable[[str, int], None],
        warn: Callable[[str], None],
    ) -> None:
        self.ray, self.options, self.on_worker, self.warn = ray, options, on_worker, warn
        self.device = _pick_device(device, int(ray.cluster_resources().get("GPU", 0)))
        self.threads = max(threads, 1)
        self.model = ray.put(model)  # once a machine, however many workers it has
        self.busy: dict[Any, tuple[Any, Job | None]] = {}  # by what will be answered; without a job it gets ready
        self.idle: list[Any] = []
        self.failed_starts = 0

    def room(self) -> int:
        """How many workers the cluster has room for."""
        resources = self.ray.cluster_resources()
        rooms = resources.get("GPU", 0) if self.device == "cuda" else resources.get("CPU", 1) // self.threads
        return max(1, int(rooms))

    def run(self, jobs: Iterator[tuple[TextShard, Chunk]], size: int, finish: Callable[[Job, Answer], None]) -> None:
        """Has every job done by one of so many workers, and gives its answer to `finish`.

        After an error nothing more is begun, but what was begun is finished, so that it need not be done again.
        """
        queue = Queue(jobs)
        for _ in range(size):
            self._start()
        while queue.left or any(job for _, job in self.busy.values()):
            reference = self._wait()
            worker, job = self.busy.pop(reference)
            answer = None
            try:
                answer = self.ray.get(reference)
            except self.ray.exceptions.RayError as error:
                self.ray.kill(worker)
                self._mourn(queue, job, error)
            else:
                self.idle.append(worker)
            while self.idle and queue.left:  # before the answer is written: nobody waits for our disk
                self._send(self.idle.pop(), queue.ahead.popleft())
            if isinstance(answer, Answer):
                assert job is not None, "an answer is of a job"
                finish(job, answer)
            elif answer is not None:
                self.failed_starts = 0
                self.on_worker(*answer)
        if queue.failure is not None:
            raise queue.failure

    def _start(self) -> None:
        """A new worker; it gets its first job when it is ready, so that none waits where there is no room."""
        wanted = {"num_cpus": self.threads, "num_gpus": int(self.device == "cuda"), "max_restarts": 0}
        remote = self.ray.remote(Worker).options(**wanted)
        worker = remote.remote(self.model, self.options, device=self.device, threads=self.threads)
        self.busy[worker.prepare.remote()] = worker, None

    def _send(self, worker: Any, job: Job) -> None:
        reference = worker.translate.remote(job.chunk.texts(), job.shard.first)
        self.busy[reference] = worker, job._replace(tries=job.tries + 1)

    def _wait(self) -> Any:
        """What is answered first."""
        done, _ = self.ray.wait(list(self.busy), num_returns=1, timeout=ROOM_SECONDS)
        if not done:
            if not self.idle and not any(job for _, job in self.busy.values()):
                self.warn(
                    "no worker has begun yet; if the cluster has no room (see `ray status`), this goes on waiting"
                )
            done, _ = self.ray.wait(list(self.busy), num_returns=1)
        return done[0]

    def _mourn(self, queue: Queue, job: Job | None, error: Exception) -> None:
        """Puts another worker in the place of one that failed, and its job back; a mistake that we can explain ends all."""
        cause = getattr(error, "cause", None)
        if isinstance(cause, RegardError):
            queue.stop(cause)
            return
        if job is not None:
            queue.put_back(job, error)
        else:
            self.failed_starts += 1
            if self.failed_starts >= MOST_TRIES:
                queue.stop(DecodeError(f"no worker could begin; the last one ended so: {_first_line(error)}"))
        if queue.failure is None:
            self.warn(f"a worker was lost ({_first_line(error)}); another takes its place")
            self._start()


def _refuse_silent(address: str) -> None:
    """Raises ConfigError if nobody is at host:port; Ray itself would try for minutes."""
    found = re.search(r"([^/:\s]+):(\d+)$", address)
    if found is None:  # nothing, "auto" or "local"
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"the Ray cluster at {address} does not answer; start it, or unset RAY_ADDRESS to use this machine"
        ) from error


def _pick_device(name: str, gpus: int) -> str:
    if name.startswith("cuda:"):
        raise ConfigError(f"device is {name!r}, but Ray hands out the GPUs; use --device cuda, cpu or auto")
    if name == "cuda" and not gpus:
        raise ConfigError("device is 'cuda', but the Ray cluster has no GPU; use --device cpu or auto")
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"there is no kind of device called {name!r}; use auto, cpu or cuda")
    return "cuda" if gpus and name != "cpu" else "cpu"


def _first_line(error: Exception) -> str:
    """What happened, without where: Ray's own errors are pages long."""
    cause = getattr(error, "cause", None) or error
    lines = str(cause).strip().splitlines() or [""]
    return f"{type(cause).__name__}: {lines[0].rstrip('.')}"

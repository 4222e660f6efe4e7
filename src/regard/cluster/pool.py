"""Workers on a Ray cluster. Each holds one shard at a time; the shard of a worker that died is assigned to another."""

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

from regard.cluster.formats import ShardRows
from regard.cluster.output import TextShard
from regard.cluster.worker import PackedModel, RayWorker, ShardResult
from regard.config import SearchOptions
from regard.errors import ConfigError, DecodeError, RegardError, require
from regard.messages import counted

MAX_ATTEMPTS = 4  # at one shard, or at starting workers without any success in between
WAIT_SECONDS = 60.0  # without any worker, before a warning


class ShardAttempt(NamedTuple):
    """A shard, its rows, and how often its translation was started."""

    shard: TextShard
    rows: ShardRows
    attempts: int = 0


class ShardQueue:
    """Shards to assign: those to retry first, then new ones as they are read. After a failure nothing is assigned."""

    def __init__(self, shards: Iterator[tuple[TextShard, ShardRows]]) -> None:
        self.shards = shards
        self.next: deque[ShardAttempt] = deque()
        self.failure: RegardError | None = None

    @property
    def has_more(self) -> bool:
        """Whether there is a shard to assign; reads one if none is buffered."""
        if not self.next and self.failure is None:
            try:
                self.next.extend(ShardAttempt(*pair) for pair in islice(self.shards, 1))
            except RegardError as error:
                self.stop(error)
        return bool(self.next)

    def stop(self, failure: RegardError) -> None:
        """Assign nothing more. The first failure is the one that is raised in the end."""
        self.failure = self.failure or failure
        self.next.clear()

    def retry(self, attempt: ShardAttempt, error: Exception) -> None:
        """Put a shard back to the front, or stop if it has failed too often."""
        if attempt.attempts >= MAX_ATTEMPTS:
            text = f"{attempt.shard} failed {counted(attempt.attempts, 'time')}; the last error: {_first_line(error)}"
            self.stop(DecodeError(text))
        elif self.failure is None:
            self.next.appendleft(attempt)


@contextmanager
def connected() -> Iterator[Any]:
    """Yield the `ray` module, connected to the cluster of RAY_ADDRESS or `ray start`, or else to a local instance."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # avoids a warning about a future default
    terminated = signal.getsignal(signal.SIGTERM)
    ray = require("ray", extra="ray")
    if ray.is_initialized():  # by the calling program, which also shuts it down
        yield ray
        return
    _check_reachable(os.environ.get("RAY_ADDRESS", ""))
    try:
        ray.init(include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, ray.exceptions.RayError) as error:
        raise ConfigError(
            f"cannot connect to the Ray cluster ({_first_line(error)}); if it requires a token, configure it on this "
            "machine as the Ray manual describes, or unset RAY_ADDRESS to use a local Ray instance"
        ) from error
    if threading.current_thread() is threading.main_thread():
        # Ray's own handler exits with status 15, which does not identify a signal.
        signal.signal(signal.SIGTERM, terminated)
    try:
        yield ray
    finally:
        ray.shutdown()


class WorkerPool:
    """As many workers as the cluster has resources for. Calls `on_worker` for each one that is ready."""

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
        self.model = ray.put(model)  # sent once per machine, for all its workers
        # Worker and shard by the reference of the pending call; no shard: the worker is loading the model.
        self.busy: dict[Any, tuple[Any, ShardAttempt | None]] = {}
        self.idle: list[Any] = []
        self.failed_starts = 0

    def capacity(self) -> int:
        """Return the number of workers that the cluster has resources for."""
        resources = self.ray.cluster_resources()
        slots = resources.get("GPU", 0) if self.device == "cuda" else resources.get("CPU", 1) // self.threads
        return max(1, int(slots))

    def run(
        self,
        shards: Iterator[tuple[TextShard, ShardRows]],
        size: int,
        finish: Callable[[ShardAttempt, ShardResult], None],
    ) -> None:
        """Translate every shard on one of `size` workers and pass each result to `finish`.

        After an error no further shard is started, but running ones are finished, so that their work is not lost.
        """
        queue = ShardQueue(shards)
        for _ in range(size):
            self._start()
        while queue.has_more or any(attempt for _, attempt in self.busy.values()):
            reference = self._wait()
            worker, attempt = self.busy.pop(reference)
            result = None
            try:
                result = self.ray.get(reference)
            except self.ray.exceptions.RayError as error:
                self.ray.kill(worker)
                self._replace_worker(queue, attempt, error)
            else:
                self.idle.append(worker)
            # Assign before writing the result, so that workers do not wait for the disk.
            while self.idle and queue.has_more:
                self._assign(self.idle.pop(), queue.next.popleft())
            if isinstance(result, ShardResult):
                assert attempt is not None, "a result belongs to a shard"
                finish(attempt, result)
            elif result is not None:
                self.failed_starts = 0
                self.on_worker(*result)
        if queue.failure is not None:
            raise queue.failure

    def _start(self) -> None:
        """Start a worker. It gets a shard when it is ready, so that no shard waits for resources."""
        wanted = {"num_cpus": self.threads, "num_gpus": int(self.device == "cuda"), "max_restarts": 0}
        remote = self.ray.remote(RayWorker).options(**wanted)
        worker = remote.remote(self.model, self.options, device=self.device, threads=self.threads)
        self.busy[worker.prepare.remote()] = worker, None

    def _assign(self, worker: Any, attempt: ShardAttempt) -> None:
        reference = worker.translate.remote(attempt.rows.texts(), attempt.shard.first)
        self.busy[reference] = worker, attempt._replace(attempts=attempt.attempts + 1)

    def _wait(self) -> Any:
        """Return the reference of the first call that has completed."""
        done, _ = self.ray.wait(list(self.busy), num_returns=1, timeout=WAIT_SECONDS)
        if not done:
            if not self.idle and not any(attempt for _, attempt in self.busy.values()):
                self.warn("no worker has started yet; still waiting for cluster resources (see `ray status`)")
            done, _ = self.ray.wait(list(self.busy), num_returns=1)
        return done[0]

    def _replace_worker(self, queue: ShardQueue, attempt: ShardAttempt | None, error: Exception) -> None:
        """Start a new worker after one failed and retry its shard. A RegardError stops the run: it would recur."""
        cause = getattr(error, "cause", None)
        if isinstance(cause, RegardError):
            queue.stop(cause)
            return
        if attempt is not None:
            queue.retry(attempt, error)
        else:
            self.failed_starts += 1
            if self.failed_starts >= MAX_ATTEMPTS:
                queue.stop(DecodeError(f"no worker could be started; the last error: {_first_line(error)}"))
        if queue.failure is None:
            self.warn(f"a worker was lost ({_first_line(error)}); starting a new one")
            self._start()


def _check_reachable(address: str) -> None:
    """Raise ConfigError if nothing listens at host:port; Ray itself would retry for minutes."""
    found = re.search(r"([^/:\s]+):(\d+)$", address)
    if found is None:  # empty, "auto" or "local"
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"the Ray cluster at {address} does not respond; start it, or unset RAY_ADDRESS to use this machine"
        ) from error


def _pick_device(name: str, gpus: int) -> str:
    if name.startswith("cuda:"):
        raise ConfigError(f"device is {name!r}, but Ray assigns the GPUs; use --device cuda, cpu or auto")
    if name == "cuda" and not gpus:
        raise ConfigError("device is 'cuda', but the Ray cluster has no GPU; use --device cpu or auto")
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"unknown device {name!r}; use auto, cpu or cuda")
    return "cuda" if gpus and name != "cpu" else "cpu"


def _first_line(error: Exception) -> str:
    """Return the type and first line of an error, without the long tracebacks of Ray."""
    cause = getattr(error, "cause", None) or error
    lines = str(cause).strip().splitlines() or [""]
    return f"{type(cause).__name__}: {lines[0].rstrip('.')}"

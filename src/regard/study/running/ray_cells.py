"""Cells as actors of a Ray cluster whose machines share the folder of the study and the data."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import msgspec

from regard.study.running.job import FAILED, STOPPED, Job
from regard.study.running.workers import LocalWorker, Start, Worker


class CellActor:
    """Trains one cell on the machine where Ray has placed it."""

    def __init__(self, job: Job) -> None:
        self.job, self.stopping = job, threading.Event()
        self.worker: LocalWorker | None = None

    def train(self) -> tuple[int, str]:
        """Return the exit status and the errors of the process."""
        if self.stopping.is_set():
            return STOPPED, ""
        self.worker = LocalWorker(self.job)
        if self.stopping.is_set():  # asked in another thread meanwhile
            self.worker.ask_to_stop()
        status = self.worker.wait()
        return status, self.worker.errors()

    def ask_to_stop(self) -> None:
        """Ask the process to save and stop. If it has not started yet, it is not started."""
        self.stopping.set()
        if self.worker is not None:
            self.worker.ask_to_stop()


class RayCell:
    """A cell on a cluster, as the runner sees it."""

    def __init__(self, ray: Any, job: Job, *, gpus: float) -> None:
        self.ray, self.job = ray, job
        # A second call, which asks to stop, must arrive while the first one runs.
        options = {"num_cpus": 1, "num_gpus": gpus, "max_restarts": 0, "max_concurrency": 2}
        self._actor = ray.remote(CellActor).options(**options).remote(job)
        self._call = self._actor.train.remote()
        self._result: tuple[int, str] | None = None

    def poll(self) -> int | None:
        if self._result is None:
            done, _ = self.ray.wait([self._call], timeout=0)
            if done:
                self._finish()
        return None if self._result is None else self._result[0]

    def _finish(self) -> None:
        try:
            self._result = self.ray.get(self._call)
        except self.ray.exceptions.RayError as error:  # the machine is gone, for example
            self._result = FAILED, f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        self.ray.kill(self._actor)  # gives its resources back

    def ask_to_stop(self) -> None:
        if self._result is None:
            self._actor.ask_to_stop.remote()

    def end(self, seconds: float) -> None:
        if self._result is None:
            done, _ = self.ray.wait([self._call], timeout=seconds)
            if done:
                self._finish()
            else:
                self._result = STOPPED, ""
                self.ray.kill(self._actor)

    def errors(self) -> str:
        return "" if self._result is None else self._result[1]


def ray_start(ray: Any, *, per_gpu: int) -> tuple[Start, int]:
    """Return a function that starts a cell on the cluster, and how many cells it has room for.

    `per_gpu` cells share a GPU; without GPUs a cell takes one core.
    """
    resources = ray.cluster_resources()
    gpus, cores = int(resources.get("GPU", 0)), max(1, int(resources.get("CPU", 1)))

    def start(job: Job, running: Iterable[Worker]) -> Worker:
        shared = per_gpu if gpus else cores
        return RayCell(
            ray,
            msgspec.structs.replace(job, sharing_cores=shared, sharing_device=shared),
            gpus=1 / per_gpu if gpus else 0,
        )

    return start, max(1, gpus * per_gpu if gpus else cores)

"""Processes that train cells on this machine: their start, their environment, and their end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Protocol

import msgspec

from regard.cores import usable_cores
from regard.study.running.job import Job

END_SECONDS = 120.0  # for all processes together to save their last step
MAX_ERROR = 20_000  # characters that are kept of the errors of a process


class Worker(Protocol):
    """A process that trains a cell, here or on another machine."""

    job: Job

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs; below 0 if a signal ended it."""

    def ask_to_stop(self) -> None:
        """Ask it to save and stop."""

    def end(self, seconds: float) -> None:
        """Wait at most `seconds` until it has ended, then kill it."""

    def errors(self) -> str:
        """Return what it has printed, when it has ended."""


Start = Callable[[Job, Iterable[Worker]], Worker]  # starts a worker, given those that run already


class LocalWorker:
    """A process on this machine."""

    def __init__(self, job: Job, *, gpu: str | None = None) -> None:
        self.job, self.gpu = job, gpu
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `errors`
        self._process = subprocess.Popen(
            [sys.executable, "-m", "regard.study.running.train_cell"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env=environment(os.environ, sharing_cores=job.sharing_cores, gpu=gpu),
        )
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(job))
        self._process.stdin.close()

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self) -> int:
        """Wait until it has ended, and return the exit status."""
        return self._process.wait()

    def ask_to_stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()

    def end(self, seconds: float) -> None:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def errors(self) -> str:
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        self._errors.close()
        return text[-MAX_ERROR:]


def environment(given: Mapping[str, str], *, sharing_cores: int, gpu: str | None) -> dict[str, str]:
    """Return the environment of a process: its share of the cores, and one GPU if there are several."""
    found = {"MIMALLOC_PURGE_DELAY": "1000", **given}
    if sharing_cores > 1:
        found.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // sharing_cores)))
    if gpu is not None:
        found["CUDA_VISIBLE_DEVICES"] = gpu
    return found


def visible_gpus(given: Mapping[str, str] = os.environ, devices: Path = Path("/dev")) -> list[str]:
    """Return the names of the GPUs that processes may use, without asking PyTorch; an empty list if none is known."""
    named = given.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() and name.strip() != "-1"]
    # A container with some of the host's GPUs has their names, such as nvidia2, but CUDA counts those that there are from 0.
    count = sum(path.name.removeprefix("nvidia").isdecimal() for path in devices.glob("nvidia[0-9]*"))
    return [str(number) for number in range(count)]


def cells_at_once() -> int:
    """Return how many cells train at the same time unless a user says it: one per GPU, or one without GPUs."""
    return max(1, len(visible_gpus()))


def start_here(job: Job, running: Iterable[Worker]) -> Worker:
    """Start a process on this machine, on the GPU with the fewest others."""
    gpus = visible_gpus()
    if len(gpus) < 2:
        return LocalWorker(job)
    used = Counter(one.gpu for one in running if isinstance(one, LocalWorker))
    return LocalWorker(job, gpu=min(gpus, key=lambda gpu: used[gpu]))

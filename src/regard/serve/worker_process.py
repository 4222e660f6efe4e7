"""A worker process as the server sees it: messages with timeouts, and whether it still lives. See `serve.worker`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

STOPPED_SECONDS = 0.6  # of silence after which a stopped process is replaced: two missed beats
SILENT_SECONDS = 20.0  # of silence after which any process is
LOAD_SECONDS = 300.0  # that a process may take to load its models
KEYS_VARIABLE = "REGARD_API_KEYS"  # which workers have no use for
END_SECONDS = 5.0  # that a process may take to end


class WorkerFailed(Exception):
    """A worker process ended, or does not react any more."""


@dataclass(frozen=True)
class WorkerCommand:
    """How a worker process is started."""

    arguments: list[str]
    environment: Mapping[str, str]

    @classmethod
    def for_runs(cls, runs: list[Path], *, device: str, int8: bool, threads: int) -> WorkerCommand:
        how = [device, "int8" if int8 else "float32", str(threads)]
        # The library that multiplies integers on Arm CPUs knows nothing of PyTorch's threads, but reads this variable.
        environment = os.environ | ({"OMP_NUM_THREADS": str(threads)} if int8 else {})
        environment.pop(KEYS_VARIABLE, None)
        return cls([sys.executable, "-m", "regard.serve.worker", *how, *map(str, runs)], environment)


class WorkerProcess:
    """One process, from its start to its end. No method waits longer than it says, whatever the process does."""

    def __init__(self, command: WorkerCommand) -> None:
        self.process = subprocess.Popen(
            command.arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
            env=command.environment,
        )
        self.loaded = False
        self.started = self.heard = time.monotonic()
        self._received: SimpleQueue[dict[str, Any] | None] = SimpleQueue()  # None: the process has ended
        self._to_send: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        # Threads of their own, because a pipe to a process that is stopped blocks whoever reads or writes it.
        for loop in (self._read, self._write):
            threading.Thread(target=loop, daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; returns at once."""
        self._to_send.put(message)

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """The next message, or nothing if none came in time; raises `WorkerFailed` if none will come."""
        try:
            message = self._received.get(timeout=timeout)
        except Empty:
            message = {}
        if message is None:
            raise WorkerFailed("ended")
        self.check()
        return message or None

    def check(self) -> None:
        """Raise `WorkerFailed` if the process does not react any more."""
        now = time.monotonic()
        silent = now - self.heard
        if silent > STOPPED_SECONDS and process_state(self.process.pid) in ("T", "Z", "X", ""):
            raise WorkerFailed("was stopped")
        if silent > SILENT_SECONDS:
            raise WorkerFailed(f"has been silent for {silent:.0f} seconds")
        if not self.loaded and now - self.started > LOAD_SECONDS:
            raise WorkerFailed(f"has not loaded its models in {LOAD_SECONDS:.0f} seconds")

    @property
    def reacts(self) -> bool:
        """Whether it has loaded its models and nothing is known to be wrong with it."""
        try:
            self.check()
        except WorkerFailed:
            return False
        return self.loaded and self.process.poll() is None

    def kill(self) -> None:
        """End it now."""
        self.process.kill()
        self._to_send.put(None)
        self._wait()

    def close(self) -> None:
        """Let it end, and make it if it does not."""
        self._to_send.put(None)
        if not self._wait():
            self.kill()

    def _wait(self) -> bool:
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            while (line := self.process.stdout.readline()).endswith("\n"):  # half a line is no message
                self.heard = time.monotonic()
                message = json.loads(line)
                if "loaded" in message:
                    self.loaded = True
                if "beat" not in message:
                    self._received.put(message)
        except ValueError:
            pass  # not our protocol: as bad as an end
        finally:
            self._received.put(None)
            self.process.stdout.close()

    def _write(self) -> None:
        assert self.process.stdin is not None
        try:
            while (message := self._to_send.get()) is not None:
                self.process.stdin.write(json.dumps(message) + "\n")
                self.process.stdin.flush()
            self.process.stdin.close()
        except OSError:
            pass  # it has ended, which the reading thread notices


def process_state(pid: int) -> str:
    """The state of a process as Linux shows it, such as R, T (stopped) or Z (ended); "?" elsewhere, "" if there is none."""
    if not Path("/proc/self/stat").exists():
        return "?"
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""

"""The server's handle of a worker process (`serve.worker`): messages with timeouts, and detection of failures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from regard.serve.access import KEYS_VARIABLE

STOPPED_SECONDS = 0.6  # without a message (two missed beats), after which a stopped process has failed
SILENT_SECONDS = 20.0  # without a message, after which any process has failed
LOAD_SECONDS = 300.0  # for a process to load its models
END_SECONDS = 5.0  # for a process to end

INT8 = {True: "int8", False: "float", None: "auto"}  # the argument of a worker for 8-bit integers


class WorkerFailed(Exception):
    """A worker process ended or no longer responds."""


@dataclass(frozen=True)
class WorkerCommand:
    """The command line and environment of a worker process."""

    arguments: list[str]
    environment: Mapping[str, str]

    @classmethod
    def for_runs(
        cls,
        runs: list[Path],
        *,
        device: str,
        int8: bool | None,
        threads: int,
        tasks: int = 1,
        into: Sequence[str | None] = (),
        engine: str = "auto",
        precision: str = "auto",
    ) -> WorkerCommand:
        """Return the command for these runs, and the language that each is to translate into, if it has several.

        The process runs up to `tasks` at once.
        """
        settings = [device, precision, INT8[int8], str(threads), str(tasks), engine]
        environment = {name: value for name, value in os.environ.items() if name != KEYS_VARIABLE}
        models = zip_longest(map(str, runs), (language or "" for language in into), fillvalue="")
        words = [word for pair in models for word in pair]
        return cls([sys.executable, "-m", "regard.serve.worker", *settings, *words], environment)


class WorkerProcess:
    """One process, from start to end. No method blocks longer than its timeout, whatever the process does."""

    def __init__(self, command: WorkerCommand) -> None:
        self.process = subprocess.Popen(
            command.arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=command.environment,
        )
        self.loaded = self.ended = False
        self.started = self.last_message = time.monotonic()
        self._received: SimpleQueue[dict[str, Any] | None] = SimpleQueue()  # None: the process has ended
        self._to_send: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        # Separate threads, because reading or writing the pipe of a stopped process blocks.
        for loop in (self._read, self._write):
            threading.Thread(target=loop, daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message without blocking."""
        self._to_send.put(message)

    def wake(self) -> None:
        """Let `receive` return at once."""
        self._received.put({})

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """Return the next message, or None after the timeout; raise WorkerFailed if the process has failed."""
        try:
            message = self._received.get(timeout=timeout)
        except Empty:
            message = {}
        if message is None:
            raise WorkerFailed("ended")
        self.check()
        return message or None

    def check(self) -> None:
        """Raise WorkerFailed if the process no longer responds."""
        now = time.monotonic()
        silent = now - self.last_message
        if silent > STOPPED_SECONDS and process_state(self.process.pid) in ("T", "Z", "X", ""):
            raise WorkerFailed("was stopped")
        if silent > SILENT_SECONDS:
            raise WorkerFailed(f"has sent nothing for {silent:.0f} seconds")
        if not self.loaded and now - self.started > LOAD_SECONDS:
            raise WorkerFailed(f"has not loaded its models in {LOAD_SECONDS:.0f} seconds")

    @property
    def is_ready(self) -> bool:
        """Whether the models are loaded and the process responds."""
        try:
            self.check()
        except WorkerFailed:
            return False
        # A process that closed its output has ended, even if the system has not reported its end yet.
        return self.loaded and not self.ended and self.process.poll() is None

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self._to_send.put(None)
        self._wait()

    def close(self) -> None:
        """Close the input of the process and wait for its end; kill it if it does not end."""
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
            while (line := self.process.stdout.readline()).endswith(b"\n"):  # an incomplete line is no message
                self.last_message = time.monotonic()
                message = msgspec.json.decode(line)
                if "loaded" in message:
                    self.loaded = True
                if "beat" not in message:
                    self._received.put(message)
        except msgspec.DecodeError:
            pass  # an invalid message is treated like the end of the process
        finally:
            self.ended = True
            self._received.put(None)
            self.process.stdout.close()

    def _write(self) -> None:
        assert self.process.stdin is not None
        try:
            while (message := self._to_send.get()) is not None:
                self.process.stdin.write(msgspec.json.encode(message) + b"\n")
                self.process.stdin.flush()
            self.process.stdin.close()
        except OSError:
            pass  # the process has ended, which the reading thread detects


def process_state(pid: int) -> str:
    """Return the state letter of a process on Linux (R running, T stopped, Z zombie), "" if there is none, "?" elsewhere."""
    if not Path("/proc/self/stat").exists():
        return "?"
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""

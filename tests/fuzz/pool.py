"""The pool of workers: counts what they report, and replaces a worker that crashes or hangs, which is a finding."""

from __future__ import annotations

import json
import mmap
import os
import selectors
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tests.fuzz.bases import Base, load_base, make_bases, write_text
from tests.fuzz.mutate import Case
from tests.fuzz.worker import FuzzPlan, work

GRACE = 20.0  # extra seconds for a worker to end itself before it is killed
SHOWN = 3  # cases kept per finding


@dataclass
class Summary:
    """Counts and findings so far."""

    targets: Counter[str] = field(default_factory=Counter)
    mutations: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)  # by target
    by_number: dict[int, str] = field(default_factory=dict)
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    memory: dict[str, list[list[int]]] = field(default_factory=dict)  # per worker: cases done, MB
    obstacles: set[str] = field(default_factory=set)
    peak: int = 0
    restarts: int = 0

    def add(self, message: dict[str, Any]) -> None:
        self.targets[message["target"]] += 1
        self.mutations.update(message["mutations"])
        self.outcomes[message["outcome"]] += 1
        self.seconds[message["target"]] += message.get("seconds", 0.0)  # type: ignore[assignment]
        self.by_number[message["number"]] = message.get("signature", "")
        self.peak = max(self.peak, message.get("peak", 0))
        if signature := message.get("signature"):
            found = self.findings.setdefault(signature, {"count": 0, "outcome": message["outcome"], "cases": []})
            found["count"] += 1
            if "case" in message and len(found["cases"]) < SHOWN:
                found["cases"].append(message["case"])
                found.setdefault("details", message["details"])

    def as_table(self) -> dict[str, Any]:
        return {
            "cases": sum(self.outcomes.values()),
            "targets": dict(self.targets.most_common()),
            "mutations": dict(self.mutations.most_common()),
            "outcomes": dict(self.outcomes.most_common()),
            "milliseconds_per_case": {
                name: round(1000 * seconds / self.targets[name], 1) for name, seconds in self.seconds.most_common()
            },
            "isolated": not any(self.obstacles),
            "not_isolated_because": sorted(filter(None, self.obstacles)),
            "peak_mb": round(self.peak / 1e6),
            "memory_mb_by_worker": {
                pid: [[done, round(rss / 1e6)] for done, rss in rows] for pid, rows in self.memory.items()
            },
            "restarts": self.restarts,
            "findings": dict(sorted(self.findings.items(), key=lambda item: -item[1]["count"])),
        }


class Process:
    """A handle of a worker process."""

    def __init__(self, plan: FuzzPlan, numbers: range, log: Path) -> None:
        self.plan, self.numbers = plan, numbers
        self.current = mmap.mmap(-1, 8)
        self.current[:8] = struct.pack("<q", -1)
        self.log_path = log
        reading, writing = os.pipe()
        file = os.open(log, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(reading)
                work(plan, numbers, writing, self.current, file)
                status = 0
            except BaseException:
                import traceback

                os.write(file, traceback.format_exc().encode())
            finally:
                os._exit(status)
        os.close(writing)
        os.close(file)
        self.results: BinaryIO = os.fdopen(reading, "rb", buffering=0)
        self.buffer = b""
        self.last = time.monotonic()
        self.done = 0

    def messages(self) -> Iterator[dict[str, Any]] | None:
        """Return the messages received; None at the end of the process."""
        content = self.results.read(65536)
        if not content:
            return None
        self.last = time.monotonic()
        *lines, self.buffer = (self.buffer + content).split(b"\n")
        return map(json.loads, lines)

    def end(self) -> tuple[int, str]:
        """Return the exit status and the end of the log."""
        _, status = os.waitpid(self.pid, 0)
        self.results.close()
        return os.waitstatus_to_exitcode(status), self.log_path.read_text(errors="replace")[-6000:]


class Pool:
    """Runs all cases on several workers."""

    def __init__(self, plan: FuzzPlan, total: int, workers: int) -> None:
        self.plan, self.total, self.workers = plan, total, workers
        self.summary = Summary()
        self.started = time.monotonic()
        self._shown = 0.0

    def run(self) -> Summary:
        selector = selectors.DefaultSelector()

        def start(numbers: range) -> None:
            if numbers:
                log = self.plan.root / f"worker-{numbers.start}.log"
                process = Process(self.plan, numbers, log)
                selector.register(process.results, selectors.EVENT_READ, process)

        for worker in range(self.workers):
            start(range(worker, self.total, self.workers))
        while selector.get_map():
            for key, _ in selector.select(timeout=1.0):
                process: Process = key.data
                messages = process.messages()
                if messages is None:
                    selector.unregister(process.results)
                    start(self._ended(process))
                    continue
                for message in messages:
                    self._take(process, message)
            for key in list(selector.get_map().values()):
                if time.monotonic() - key.data.last > self.plan.timeout * 4 + GRACE:
                    os.kill(key.data.pid, signal.SIGKILL)
            self._show()
        return self.summary

    def _take(self, process: Process, message: dict[str, Any]) -> None:
        if "rss" in message:
            self.summary.memory.setdefault(str(message["pid"]), []).append([message["done"], message["rss"]])
        elif "obstacle" in message:
            self.summary.obstacles.add(message["obstacle"])
        else:
            process.done += 1
            self.summary.add(message)

    def _ended(self, process: Process) -> range:
        """Return the remaining cases of a worker; record a finding if it crashed."""
        status, wrote = process.end()
        left = process.numbers[process.done :]
        if status == 0 and not left:
            return left
        (number,) = struct.unpack("<q", process.current[:8])
        if number not in left:
            raise RuntimeError(f"a worker could not start (status {status}):\n{wrote}")
        hung = "Timeout (" in wrote
        outcome = "hang" if hung or status == -signal.SIGKILL else "crash"
        case = self.plan.case(number)
        main = wrote.rpartition("most recent call first")[2] or wrote  # the main thread is last
        place = next((line.strip() for line in main.splitlines() if "/regard/" in line), f"status {status}")
        message = {"number": number, **case.labels(), "outcome": outcome, "details": wrote}
        signature = f"{outcome} at {_short(place)}"
        self.summary.add({**message, "signature": signature, "case": json.loads(case.as_json())})
        self.summary.restarts += 1
        return left[left.index(number) + 1 :]

    def _show(self) -> None:
        if time.monotonic() - self._shown > 10:
            self._shown = time.monotonic()
            done, seconds = sum(self.summary.outcomes.values()), time.monotonic() - self.started
            say(f"{done:,}/{self.total:,} cases, {seconds:.0f} s, {len(self.summary.findings)} kinds of findings")


def _short(place: str) -> str:
    return place.rpartition("/regard/")[2].replace('", line ', ":").replace(" in ", " ")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def fuzz(total: int, *, seed: str, targets: list[str], given: list[Case], workers: int, timeout: float) -> Summary:
    """Run the given cases and `total` drawn ones."""
    root = Path(tempfile.mkdtemp(prefix="regard-fuzz-"))
    try:
        say("creating valid folders ...")
        write_text(root / "data")
        _in_a_child(lambda: make_bases(root / "bases", root / "data"))
        bases: dict[str, Base] = {path.name: load_base(path) for path in sorted((root / "bases").iterdir())}
        plan = FuzzPlan(root, bases, seed, targets, given, timeout)
        return Pool(plan, len(given) + total, workers).run()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _in_a_child(action: Any) -> None:
    """Run the action in a child process, so that workers inherit no threads from it."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            action()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise RuntimeError("the valid folders could not be created")

"""A process that runs cases and reports each. If it crashes, the pool starts another."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import mmap
import os
import struct
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.bases import Base, use_small_shards
from tests.fuzz.isolation import MemoryWatch, isolate, limit_memory
from tests.fuzz.mutate import Case, draw_case
from tests.fuzz.running import Runner
from tests.fuzz.sandbox import Sandbox

ROOM = 2_000_000_000  # bytes of address space beyond what the imports take
RSS_EVERY = 500  # cases
FIRST_FEW = 3  # findings with the same signature that are reported in full


@dataclass(frozen=True)
class FuzzPlan:
    """The cases to run: the given ones, then those drawn from the seed."""

    root: Path
    bases: dict[str, Base]
    seed: str
    targets: list[str]
    given: list[Case]
    timeout: float

    def case(self, number: int) -> Case:
        if number < len(self.given):
            return self.given[number]
        return draw_case(self.seed, number - len(self.given), self.bases, self.targets)


def work(plan: FuzzPlan, numbers: Sequence[int], results: int, current: mmap.mmap, log: int) -> None:
    """Run cases; write one line of JSON per case to `results`, and before each its number to `current`."""
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable(file=log)

    def report(message: dict[str, Any]) -> None:
        content = json.dumps(message).encode() + b"\n"
        while content:
            content = content[os.write(results, content) :]

    use_small_shards()
    folder = plan.root / f"sandbox-{os.getpid()}"
    folder.mkdir()
    memory = MemoryWatch()  # before /proc becomes read-only
    obstacle = isolate(folder)
    report({"obstacle": obstacle})
    sandbox = Sandbox(folder, plan.bases, isolated=not obstacle)
    tempfile.tempdir = str(sandbox.temporary)
    runner = Runner(sandbox, plan.bases, plan.root, memory)
    limit_memory(ROOM)
    seen: dict[str, int] = {}
    for done, number in enumerate(numbers):
        if done % RSS_EVERY == 0:
            _trim()
            report({"rss": memory.now(), "done": done, "pid": os.getpid()})
            os.ftruncate(log, 0)
            os.lseek(log, 0, os.SEEK_SET)
        case = plan.case(number)
        current[:8] = struct.pack("<q", number)
        faulthandler.dump_traceback_later(plan.timeout, exit=True, file=log)
        began = time.monotonic()
        found = runner.run(case)
        faulthandler.cancel_dump_traceback_later()
        message: dict[str, Any] = {
            "number": number,
            **case.labels(),
            "outcome": found.outcome,
            "peak": memory.peak(),
            "seconds": time.monotonic() - began,
        }
        if found.finding:
            seen[found.signature] = seen.get(found.signature, 0) + 1
            message |= {"signature": found.signature}
            if seen[found.signature] <= FIRST_FEW:
                message |= {"details": found.details}
                if seen[found.signature] == 1 and len(case.mutations) > 1:
                    faulthandler.dump_traceback_later(plan.timeout, exit=True, file=log)
                    case = runner.smaller(case, found)
                    faulthandler.cancel_dump_traceback_later()
                message |= {"case": json.loads(case.as_json())}
        report(message)
    _trim()
    report({"rss": memory.now(), "done": len(numbers), "pid": os.getpid()})


def _trim() -> None:
    """Return unused memory to the system, so that a leak is visible."""
    gc.collect()
    with suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)

"""Check a learner's program with the hidden tests of an exercise, and say of each what is right or what was found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.errors import ConfigError
from regard.learn.check_process import NOT_WRITTEN, Event, run_tests
from regard.learn.exercise_files import exercises, find_exercise
from regard.learn.sources import PACKAGE

LIMIT = 60.0  # seconds for a program and all of its tests


@dataclass
class CheckedTest:
    """A hidden test: the sentence that it is about, and what is wrong, if anything is."""

    sentence: str
    wrong: str | None = None


@dataclass
class Check:
    """The hidden tests of an exercise on a program."""

    exercise: str
    tests: list[CheckedTest] = field(default_factory=list)
    failed: str | None = None  # why the program could not be run at all
    printed: str = ""

    @property
    def right(self) -> int:
        return sum(test.wrong is None for test in self.tests)

    @property
    def passed(self) -> bool:
        return self.failed is None and bool(self.tests) and self.right == len(self.tests)

    def text(self) -> str:
        """Return the report for a learner."""
        lines = [self.exercise]
        if self.failed is not None:
            lines += ["  The program cannot be run:", textwrap.indent(self.failed, "    ")]
        for test in self.tests:
            mark = "right" if test.wrong is None else "to do" if test.wrong == NOT_WRITTEN else "WRONG"
            lines.append(f"  {mark}  {test.sentence}")
            if mark == "WRONG" and test.wrong is not None:
                lines.append(textwrap.indent(test.wrong, " " * 9))
        if self.printed:
            lines += ["  The program printed:", textwrap.indent(self.printed.rstrip("\n"), "    ")]
        if self.failed is None:
            lines.append(f"  {self.right} of {len(self.tests)} tests are right.")
        return "\n".join(lines)


def checked_events(exercise: str, events: Iterable[Event], end: str) -> Check:
    """Return the result that events report. `end` is why a test has no result, if it has none."""
    check = Check(exercise)
    open_test = done = False
    for event in events:
        if "test" in event:
            check.tests.append(CheckedTest(event["test"], end))
            open_test = True
        elif "right" in event or "wrong" in event:
            check.tests[-1].wrong = event.get("wrong")
            open_test = False
        elif "printed" in event:
            check.printed += event["printed"]
        elif "failed" in event:
            check.failed = event["failed"]
        done = done or "done" in event
    if not done and not open_test and check.failed is None:
        check.failed = end
    return check


def check_file(exercise: str, path: Path, *, limit: float = LIMIT) -> Check:
    """Run the hidden tests on a learner's file, in a process of its own that ends after `limit` seconds."""
    path = path.resolve()
    command = [sys.executable, "-P", "-m", "regard.learn.check_process", exercise, str(path)]
    found = os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    # Not a pipe: processes that the program has started may keep it open after the end.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=path.parent,
            env={**os.environ, "PYTHONPATH": found, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            end = f"the program ended ({_status(process.wait(limit))})"
        except subprocess.TimeoutExpired:
            end = f"the program has not ended after {limit:g} seconds, and was stopped"
        finally:
            _kill(process)
        process.wait()
        output.seek(0)
        written = output.read()
    return checked_events(exercise, _events(written), end)


def check_here(exercise: str, names: Mapping[str, Any]) -> None:
    """Print what the hidden tests say about functions of this process, in a notebook: check_here("masks", globals())."""
    find_exercise(exercise)
    print(checked_events(exercise, [*run_tests(exercise, names, "this notebook"), {"done": True}], "").text())


def check_folder(name: str | None, folder: Path) -> list[Check]:
    """Check one exercise in a folder, or all that are there. Raise ConfigError if there is none."""
    if name is None:
        found = [one for one in exercises() if (folder / f"{one}.py").is_file()]
        if not found:
            raise ConfigError(f"{folder} has no exercises; write them with: regard learn start --all --out {folder}")
        return [check_file(one, folder / f"{one}.py") for one in found]
    path = folder / f"{find_exercise(name).name}.py"
    if not path.is_file():
        raise ConfigError(f"{path} is not there; write it with: regard learn start {name} --out {folder}")
    return [check_file(name, path)]


def _events(written: bytes) -> Iterable[Event]:
    for line in written.decode("utf-8", "replace").splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue  # written by the program itself, around its standard output
        if isinstance(event, dict):
            yield event


def _status(code: int) -> str:
    return f"exit status {code}" if code >= 0 else f"signal {-code}, {signal.Signals(-code).name}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it has started."""
    if hasattr(os, "killpg"):
        # Those that it has started may still be there when it has ended.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()

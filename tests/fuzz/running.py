"""Runs one case: create it, run it, classify the outcome, and minimize it if it is a finding."""

from __future__ import annotations

import io
import traceback
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import regard
from tests.fuzz.application import Application
from tests.fuzz.apply import make_case
from tests.fuzz.bases import Base
from tests.fuzz.isolation import MemoryWatch
from tests.fuzz.mutate import Case
from tests.fuzz.sandbox import Sandbox
from tests.fuzz.targets import FOLDER_TARGETS, Place

MAX_GROWTH = 300_000_000  # bytes of resident memory that one case may need
MAX_MESSAGE = 2000  # characters of an error message
SOURCE = str(Path(regard.__file__).parent)


@dataclass(frozen=True)
class Result:
    """The outcome of a case: "ok" and "refused" are allowed, everything else is a finding."""

    outcome: str
    signature: str = ""  # equal for the same finding
    details: str = ""

    @property
    def finding(self) -> bool:
        return bool(self.signature)


class Runner:
    """Runs cases in a sandbox."""

    def __init__(self, sandbox: Sandbox, bases: dict[str, Base], root: Path, memory: MemoryWatch) -> None:
        self.sandbox, self.bases = sandbox, bases
        self.place = Place(sandbox.run, sandbox.out, root / "data", root / "bases")
        self.memory = memory

    @cached_property
    def application(self) -> Application:
        return Application(self.place.bases / "char")

    def run(self, case: Case) -> Result:
        if case.target == "request":
            application = self.application
            return self._classify(case, lambda: application.answer(case.mutations[0]))
        self.sandbox.clear()
        make_case(case, self.bases[case.base], self.sandbox.run, self.sandbox.outside / case.base)
        self.sandbox.settle(case.base)
        return self._classify(case, lambda: FOLDER_TARGETS[case.target](self.place))

    def _classify(self, case: Case, action: Any) -> Result:
        printed = io.StringIO()
        self.memory.reset()
        before, highest = self.memory.now(), self.memory.peak()
        outcome, output = "ok", ""
        try:
            with redirect_stdout(printed), redirect_stderr(printed):
                output = action()
        except regard.RegardError as error:
            outcome, output = "refused", str(error)
        except Exception as error:
            return Result("exception", signature_of(error), _shortened(traceback.format_exc()))
        grown = self.memory.peak() - before
        if grown > MAX_GROWTH and self.memory.peak() > highest:
            return Result("memory", f"memory in {case.target}", f"{grown / 1e6:.0f} MB")
        output += printed.getvalue()
        if case.target != "request":
            found = [*self.sandbox.violations(case.base), *self.sandbox.leaks(output)]
            if found:
                return Result("outside", f"{case.target}: {found[0]}", "\n".join(found))
        if outcome == "refused" and len(output) > MAX_MESSAGE:
            return Result("message", f"long message in {case.target}", output[:300])
        return Result(outcome)

    def smaller(self, case: Case, found: Result) -> Case:
        """Return the case without mutations that the finding does not need."""
        for mutation in list(case.mutations):
            fewer = replace(case, mutations=[one for one in case.mutations if one is not mutation])
            if fewer.mutations and self.run(fewer).signature == found.signature:
                case = fewer
        return case


def signature_of(error: BaseException) -> str:
    """Return the type of the error and the innermost frame in our code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(SOURCE)] or list(frames)
    where = f"{Path(own[-1].filename).relative_to(SOURCE) if own[-1].filename.startswith(SOURCE) else own[-1].filename}"
    return f"{type(error).__name__} in {where}:{own[-1].name}"


def _shortened(text: str) -> str:
    lines = [line[:300] for line in text.splitlines()]
    return "\n".join(lines if len(lines) < 60 else [*lines[:20], "...", *lines[-30:]])

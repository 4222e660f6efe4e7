"""The process that runs a learner's program and the hidden tests of an exercise, and reports one event per line.

`regard learn check` starts it: a program that never ends, crashes or asks for all of the memory takes nothing else with it.
What the program prints becomes events too, up to a limit.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import linecache
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from regard.learn.expecting import Program, Wrong
from regard.process_end import end_process
from regard.storage.memory import limit_memory

NOT_WRITTEN = "not written yet"
MOST_PRINTED = 2000  # characters that a program prints and a report repeats
MOST_MEMORY = 4 * 10**9  # bytes, with those of PyTorch
Event = dict[str, Any]
Test = Callable[[Program], None]


class Printing(io.TextIOBase):
    """A standard output whose text becomes events."""

    def __init__(self, out: TextIO) -> None:
        self.out, self.left = out, MOST_PRINTED

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.left > 0:
            send(self.out, {"printed": text[: self.left]})
            self.left -= len(text)
        return len(text)


def send(out: TextIO, event: Event) -> None:
    out.write(json.dumps(event) + "\n")
    out.flush()


def hidden_tests(exercise: str) -> list[Test]:
    """Return the tests of an exercise in their order. The docstring of a test says what is right."""
    module = importlib.import_module(f"regard.learn.exercises.{exercise}.hidden_tests")
    return [test for name, test in vars(module).items() if name.startswith("test_")]


def run_tests(exercise: str, names: Mapping[str, Any], title: str) -> Iterator[Event]:
    """Run the hidden tests on what a program has defined. Yield the beginning and the result of each test."""
    program = Program(names, title)
    for test in hidden_tests(exercise):
        yield {"test": " ".join((test.__doc__ or "").split())}
        try:
            test(program)
        except Wrong as error:
            yield {"wrong": str(error)}
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            yield {"wrong": describe(error, names, title)}
        else:
            yield {"right": True}


def describe(error: BaseException, names: Mapping[str, Any], title: str) -> str:
    """Return an exception of a learner's program: the last of its own lines, and the message."""
    if isinstance(error, NotImplementedError) and not error.args:
        return NOT_WRITTEN
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).name == title:
        return f"{title}, line {error.lineno}: {(error.text or '').strip()}\n{error.msg}"
    message = f"{type(error).__name__}: {error}".strip().removesuffix(":")
    if isinstance(error, MemoryError):
        message += f" (a program may use {MOST_MEMORY / 1e9:g} GB)"
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_globals is names]
    if not frames:
        return message
    frame, line = frames[-1]
    text = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()
    return f"{title}, line {line}: {text}\n{message}"


def main(exercise: str, file: str) -> None:
    """Report the hidden tests of an exercise on a file, as events on the standard output."""
    limit_memory(MOST_MEMORY)
    out = sys.stdout
    sys.dont_write_bytecode = True
    sys.stdout = sys.stderr = Printing(out)
    path = Path(file)
    module = ModuleType(path.stem)
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None, path
        module = importlib.util.module_from_spec(spec)
        sys.path.append(str(path.parent))  # a learner may import files of their own, which hide none of Python's
        spec.loader.exec_module(module)
    except BaseException as error:
        send(out, {"failed": describe(error, vars(module), path.name)})
    else:
        for event in run_tests(exercise, vars(module), path.name):
            send(out, event)
    send(out, {"done": True})


if __name__ == "__main__":
    main(*sys.argv[1:])
    end_process(0)

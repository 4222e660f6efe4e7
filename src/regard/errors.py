"""What can go wrong, as a tree. The command line shows any `RegardError` as one sentence and exits with 1.

RegardError
├── ConfigError        a recipe or an option that does not fit
├── DataError          text that cannot be read, or does not line up
├── CheckpointError    a run folder that is missing, damaged or busy
├── DecodeError        a search that cannot be carried out as asked
│   ├── Cancelled          a search that nobody waits for any more
│   └── DeadlineExceeded   a search that took longer than it may
├── TrainingError      training that cannot go on
└── MissingExtra       an optional package that is not installed
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType

MOST_CHARACTERS = 1000  # of a message


class RegardError(Exception):
    """A mistake we can explain: what was given, what fits, what to do."""

    def __str__(self) -> str:
        text = super().__str__()  # which may quote what a stranger wrote
        return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 200]} ... {text[-200:]}"


class ConfigError(RegardError):
    """A recipe or an option that does not fit."""


class DataError(RegardError):
    """Text that cannot be read, or does not line up."""


class CheckpointError(RegardError):
    """A run folder that is missing, damaged or busy."""


class DecodeError(RegardError):
    """A search that cannot be carried out as asked."""


class Cancelled(DecodeError):
    """A search that nobody waits for any more."""


class DeadlineExceeded(DecodeError):
    """A search that took longer than it may."""


class TrainingError(RegardError):
    """Training that cannot go on."""


class MissingExtra(RegardError):
    """An optional package that is not installed."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The tail of an error about an unknown name: its nearest neighbour, or all that is known."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"


def require(package: str, *, extra: str) -> ModuleType:
    """The imported package, or the sentence that says which extra brings it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtra(f"this needs the package {package!r}: pip install 'regard[{extra}]'") from error

"""All errors that regard raises for mistakes of its user. The command line prints them as one sentence and exits with 1.

RegardError
├── ConfigError        a recipe or an option that does not fit
├── DataError          data that cannot be read, or parallel files that do not match
├── CheckpointError    a run folder that is missing, damaged or busy
├── DecodeError        a search that cannot be carried out with these options or this model
│   ├── Cancelled          a search that was cancelled
│   └── DeadlineExceeded   a search that exceeded its time limit
├── TrainingError      training that cannot continue
└── MissingExtra       an optional package that is not installed
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType

MAX_CHARACTERS = 1000  # of a message


class RegardError(Exception):
    """The base class. A message says what was given, what fits, and what to do."""

    def __str__(self) -> str:
        text = super().__str__()  # may quote text of any length from a file or a request
        return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 200]} ... {text[-200:]}"


class ConfigError(RegardError):
    """A recipe or an option that does not fit."""


class DataError(RegardError):
    """Data that cannot be read, or parallel files that do not match."""


class CheckpointError(RegardError):
    """A run folder that is missing, damaged or busy."""


class DecodeError(RegardError):
    """A search that cannot be carried out with these options or this model."""


class Cancelled(DecodeError):
    """A search that was cancelled."""


class DeadlineExceeded(DecodeError):
    """A search that exceeded its time limit."""


class TrainingError(RegardError):
    """Training that cannot continue."""


class MissingExtra(RegardError):
    """An optional package that is not installed."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the most similar known name, or all known names."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"


def require(package: str, *, extra: str) -> ModuleType:
    """Import a package and return it. Raise MissingExtra, which names the extra to install, if it is missing."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtra(f"this needs the package {package!r}: pip install 'regard[{extra}]'") from error

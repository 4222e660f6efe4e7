"""All errors that regard raises for mistakes of its user. The command line prints them as one sentence and exits with 1.

RegardError
├── ConfigError        a recipe or an option that does not fit
├── DataError          data that cannot be read, or parallel files that do not match
├── CheckpointError    a run folder that is missing, damaged or busy
│   └── Busy               a folder that another process has locked
├── DecodeError        a search that cannot be carried out with these options or this model
│   ├── Cancelled          a search that was cancelled
│   └── DeadlineExceeded   a search that exceeded its time limit
├── TrainingError      training that cannot continue
│   └── Diverged           training whose gradients are not finite
└── MissingExtra       an optional package that is not installed

The functions make parts of messages: what was probably meant, a count with its noun, the command that installs an extra.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

MAX_CHARACTERS = 1000  # of a message
MAX_NAMES = 24  # listed in a message
NEAR = 0.75  # share of common letters from which on two names are similar


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


class Busy(CheckpointError):
    """A folder that another process has locked."""


class DecodeError(RegardError):
    """A search that cannot be carried out with these options or this model."""


class Cancelled(DecodeError):
    """A search that was cancelled."""


class DeadlineExceeded(DecodeError):
    """A search that exceeded its time limit."""


class TrainingError(RegardError):
    """Training that cannot continue."""


class Diverged(TrainingError):
    """Training whose gradients are not finite."""


class MissingExtra(RegardError):
    """An optional package that is not installed."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the most similar known name, or the known names if none is."""
    known = sorted(known)
    likeness = {one: _similarity(name, one) for one in known}
    similar = sorted((one for one in known if likeness[one]), key=lambda one: -likeness[one])
    if similar and (len(similar) == 1 or likeness[similar[0]] >= NEAR):
        return f"did you mean {similar[0]!r}?"
    # Several that share a word, and little else, are different things.
    known = [*similar, *(one for one in known if one not in similar)]
    more = f" and {len(known) - MAX_NAMES} more" if len(known) > MAX_NAMES else ""
    return f"known: {', '.join(known[:MAX_NAMES])}{more}"


def _similarity(name: str, known: str) -> float:
    """Return how similar two names are, from 0 to 1; 0 if they only have some letters in common.

    Similar names have most of their letters in common, or one consists of words of the other, or the known one begins with
    the name or is at least half of it, at its beginning.
    """
    a, b = _without_common_parts(name.lower(), known.lower())
    if not a or not b:
        return 0.0
    words, others = set(re.findall(r"[^\W_]+", a)), set(re.findall(r"[^\W_]+", b))
    if words == others:
        return 1.0
    ratio = difflib.SequenceMatcher(None, b, a).ratio()
    shares_words = words and others and (words <= others or others <= words)
    begins = (len(a) >= 3 and b.startswith(a)) or (2 * len(b) >= len(a) and a.startswith(b))
    return ratio if ratio >= NEAR or shares_words or begins else 0.0


def _without_common_parts(name: str, other: str) -> tuple[str, str]:
    """Return two dotted names without the parts that both begin with; the last part stays."""
    a, b = name.split("."), other.split(".")
    shared = 0
    while shared < min(len(a), len(b)) - 1 and a[shared] == b[shared]:
        shared += 1
    return ".".join(a[shared:]), ".".join(b[shared:])


def find_checkout(file: Path) -> Path | None:
    """Return the root of the source tree that a file of this package lies in; None if the package is installed."""
    package = file.resolve().parent
    root = package.parent.parent
    return root if package.parent.name == "src" and (root / "pyproject.toml").is_file() else None


CHECKOUT = find_checkout(Path(__file__))


def install_command(extra: str) -> str:
    """Return the command that installs an extra into the environment of this process."""
    if CHECKOUT is None:
        return pip_install(f"regard[{extra}]")
    place = "." if CHECKOUT.samefile(".") else CHECKOUT
    return pip_install("-e", f"{place}[{extra}]")


def pip_install(*arguments: str) -> str:
    """Return the command that installs a package into the environment of this process, which need not be active."""
    pip = "pip" if _is_on_path("pip") else f"{python_command()} -m pip"
    return f"{pip} install {shlex.join(arguments)}"


def python_command() -> str:
    """Return how to call the Python of this process: by name if it is on the path, else by its file."""
    python = Path(sys.executable)
    if _is_on_path("python"):
        return "python"
    if CHECKOUT is not None and CHECKOUT.samefile(".") and python.is_relative_to(CHECKOUT):
        python = python.relative_to(CHECKOUT)
    return shlex.quote(str(python))


def _is_on_path(program: str) -> bool:
    """Return whether the path leads to the program of this environment, and not to that of another one."""
    found = shutil.which(program)
    return found is not None and Path(found).parent == Path(sys.executable).parent


def require(package: str, *, extra: str) -> ModuleType:
    """Import a package and return it. Raise MissingExtra, with the command that installs its extra, if it is missing."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise _missing(package, extra) from error


def require_installed(package: str, *, extra: str) -> None:
    """Raise MissingExtra if a package is missing. It is not imported: that takes seconds where another process uses it."""
    if importlib.util.find_spec(package) is None:
        raise _missing(package, extra)


def _missing(package: str, extra: str) -> MissingExtra:
    return MissingExtra(f"this needs the package {package!r}: {install_command(extra)}")

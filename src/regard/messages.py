"""Messages to the user: Python warnings, numbers and durations in words, and text that is safe to print."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path

DATA_FOLDER = "--data (in Python: data=) or REGARD_DATA"  # how a user names the folder of the data
_PACKAGE = str(Path(__file__).parent)
# C0 except tab and newline, DEL, and C1: characters that control a terminal instead of being displayed.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class RegardWarning(UserWarning):
    """Something that a caller should know but need not act on, such as an input that is cut."""


def warn_caller(text: str) -> None:
    """Issue a RegardWarning that names the line of the caller's program, the innermost one outside of this package."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RegardWarning, stacklevel=level)


def printable(text: str) -> str:
    """Return the text with control characters escaped, such as ESC as \\x1b."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def format_duration(seconds: float) -> str:
    """Return a duration as 1:02:03, or as 2:03 if it is below an hour."""
    minutes, rest = divmod(round(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, as in "1 pair" and "2,000 pairs"."""
    ending = "" if number == 1 else "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{number:,} {noun}{ending}"

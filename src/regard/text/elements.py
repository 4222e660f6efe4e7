"""Lines of numbers as arrays, many lines at once: elements such as "0.25,0.5 0.1,0.9", and positions such as "1 0".

A number at a time, Python needs minutes for the points of a million examples.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

COMMA, SPACE, NEWLINE = b", \n"
NUMERIC = np.isin(np.arange(256), np.frombuffer(b"0123456789+-.eE, \n", dtype=np.uint8))
DIGITS = np.isin(np.arange(256), np.frombuffer(b"0123456789 \n", dtype=np.uint8))
LONGEST = 9  # digits of a position

Parsed = tuple[NDArray[Any], NDArray[np.int64]]  # values end to end, and the offset of each line


def parse_elements(lines: Sequence[str], width: int) -> Parsed | None:
    """Return the elements of all lines, [N, width] in float32, or None unless all have the plain form.

    In the plain form one space separates elements and one comma their numbers, and no number is too large.
    """
    found = _separated(lines, NUMERIC)
    if found is None:
        return None
    text, separators, _ = found
    if len(separators) % width:
        return None
    by_element = separators.reshape(-1, width)
    if (by_element[:, :-1] != COMMA).any() or (by_element[:, -1] == COMMA).any():
        return None
    numbers = _numbers(text.replace(",", " "), len(separators))
    if numbers is None:
        return None
    with np.errstate(over="ignore"):
        elements = numbers.astype(np.float32).reshape(-1, width)
    return (elements, _offsets(by_element[:, -1])) if np.isfinite(elements).all() else None


def parse_positions(lines: Sequence[str]) -> Parsed | None:
    """Return the positions of all lines, [N], or None unless all lines are digits with one space between numbers."""
    found = _separated(lines, DIGITS)
    if found is None:
        return None
    text, separators, widest = found
    numbers = _numbers(text, len(separators)) if widest <= LONGEST else None
    return None if numbers is None else (numbers.astype(np.int64), _offsets(separators))


def _separated(lines: Sequence[str], allowed: NDArray[np.bool_]) -> tuple[str, NDArray[np.uint8], int] | None:
    """Return the lines, each with a newline, their separators, and the characters of the longest number.

    None if a line has other characters, or nothing between two separators.
    """
    text = "\n".join([*lines, ""])
    if not text.isascii() or text.count("\n") != len(lines):
        return None
    characters = np.frombuffer(text.encode("ascii"), dtype=np.uint8)
    ends = np.flatnonzero((characters == COMMA) | (characters == SPACE) | (characters == NEWLINE))
    widths = np.diff(ends, prepend=-1) - 1
    if not allowed[characters].all() or widths.min(initial=1) < 1:
        return None
    return text, characters[ends], int(widths.max(initial=0))


def _numbers(text: str, count: int) -> NDArray[np.float64] | None:
    """Return the numbers of a text that are separated by white space, or None if there are not as many."""
    with warnings.catch_warnings():
        # numpy warns of text that is no number, and will raise ValueError.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            numbers = np.fromstring(text, dtype=np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            return None
    return numbers if len(numbers) == count else None


def _offsets(ends: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the offset of each line, given what follows each value."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.flatnonzero(ends == NEWLINE) + 1])

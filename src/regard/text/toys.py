"""Toy tasks with a known answer: copy, reverse and sort a row of letters.

    copy      b f a c  →  b f a c
    reverse   b f a c  →  c a f b
    sort      b f a c  →  a b c f

They say in a minute whether a model can attend at all: copying reads straight along, reversing against the grain, and
sorting in an order that depends on every symbol at once. All three tasks share their sources. The held-out sources are
distinct, long enough not to be met by chance, and never in the training split.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from regard.errors import DataError, did_you_mean

TASKS: dict[str, Callable[[list[str]], list[str]]] = {
    "copy": lambda symbols: symbols,
    "reverse": lambda symbols: symbols[::-1],
    "sort": sorted,
}
SYMBOLS: tuple[str, ...] = tuple("abcdefghijklmnop")
MAX_LENGTH = 12
MIN_HELD_OUT_LENGTH = 4  # there are only 4,368 shorter rows, and training is meant to see those

SIZES = {"train": 20_000, "valid": 500, "test": 1_000}
_TRAIN_SEED = 1
_HELD_OUT_SEED = 2


def generate(task: str, split: str) -> list[tuple[str, str]]:
    """Pairs of (row, row after the task) for "train", "valid" or "test", every length equally often."""
    if task not in TASKS:
        raise DataError(f"there is no toy task {task!r}; {did_you_mean(task, TASKS)}")
    if split not in SIZES:
        raise DataError(f"the toy tasks have no split {split!r}; {did_you_mean(split, SIZES)}")
    answer = TASKS[task]
    return [(" ".join(row), " ".join(answer(row))) for row in _rows(split)]


def _rows(split: str) -> list[list[str]]:
    """The sources of a split, as lists of symbols."""
    held_out = _held_out_rows()
    if split == "valid":
        return held_out[: SIZES["valid"]]
    if split == "test":
        return held_out[SIZES["valid"] :]
    taken = set(map(tuple, held_out))
    stream = (row for row in _stream(_TRAIN_SEED, 1) if tuple(row) not in taken)
    return [next(stream) for _ in range(SIZES["train"])]


def _held_out_rows() -> list[list[str]]:
    """Validation rows, then test rows, no two alike."""
    distinct: dict[tuple[str, ...], list[str]] = {}  # a dict keeps the order of arrival, which a set would not
    for row in _stream(_HELD_OUT_SEED, MIN_HELD_OUT_LENGTH):
        distinct.setdefault(tuple(row), row)
        if len(distinct) == SIZES["valid"] + SIZES["test"]:
            break
    return list(distinct.values())


def _stream(seed: int, min_length: int) -> Iterator[list[str]]:
    """Endless rows, their lengths going round from the smallest to the largest."""
    generator = random.Random(seed)  # of its methods, Python promises only random() to stay the same in later versions
    while True:
        for length in range(min_length, MAX_LENGTH + 1):
            yield [SYMBOLS[int(generator.random() * len(SYMBOLS))] for _ in range(length)]

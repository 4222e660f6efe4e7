"""Toy tasks with a known answer: copy, reverse or sort a sequence of letters.

    copy      b f a c  →  b f a c
    reverse   b f a c  →  c a f b
    sort      b f a c  →  a b c f

They show within a minute of training whether a model can attend: copying reads the source forwards, reversing reads it
backwards, and sorting reads it in an order that depends on all symbols. All three tasks have the same sources. The
held-out sources are distinct, are not in the training split, and are long enough not to occur there by chance.
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
MIN_HELD_OUT_LENGTH = 4  # there are only 4,368 shorter sequences, which are left to training

SIZES = {"train": 20_000, "valid": 500, "test": 1_000}
_TRAIN_SEED = 1
_HELD_OUT_SEED = 2


def generate(task: str, split: str) -> list[tuple[str, str]]:
    """Return pairs of (sequence, answer) for "train", "valid" or "test", with all lengths equally often."""
    if task not in TASKS:
        raise DataError(f"there is no toy task {task!r}; {did_you_mean(task, TASKS)}")
    if split not in SIZES:
        raise DataError(f"toy tasks have no split {split!r}; {did_you_mean(split, SIZES)}")
    answer = TASKS[task]
    return [(" ".join(symbols), " ".join(answer(symbols))) for symbols in _sources(split)]


def _sources(split: str) -> list[list[str]]:
    """Return the sources of a split, as lists of symbols."""
    held_out = _held_out_sources()
    if split == "valid":
        return held_out[: SIZES["valid"]]
    if split == "test":
        return held_out[SIZES["valid"] :]
    taken = set(map(tuple, held_out))
    stream = (symbols for symbols in _stream(_TRAIN_SEED, 1) if tuple(symbols) not in taken)
    return [next(stream) for _ in range(SIZES["train"])]


def _held_out_sources() -> list[list[str]]:
    """Return distinct sequences: those of the validation split, then those of the test split."""
    # A dict keeps the order of insertion, unlike a set.
    distinct: dict[tuple[str, ...], list[str]] = {}
    for symbols in _stream(_HELD_OUT_SEED, MIN_HELD_OUT_LENGTH):
        distinct.setdefault(tuple(symbols), symbols)
        if len(distinct) == SIZES["valid"] + SIZES["test"]:
            break
    return list(distinct.values())


def _stream(seed: int, min_length: int) -> Iterator[list[str]]:
    """Yield random sequences without end, with lengths that cycle from the smallest to the largest."""
    # Python guarantees the same numbers in later versions for random() only.
    generator = random.Random(seed)
    while True:
        for length in range(min_length, MAX_LENGTH + 1):
            yield [SYMBOLS[int(generator.random() * len(SYMBOLS))] for _ in range(length)]

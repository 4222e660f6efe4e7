"""Toy tasks whose answers are labels or positions.

    runs          q b c a m i  →  O B-LOW I-LOW I-LOW O O        a label per letter: runs of the first or last four letters
    majority      b f a o      →  low                            a label per row: are most letters in the first half?
    sort-numbers  0.7 0.1 0.4  →  1 2 0                          positions of the numbers in ascending order

Inputs of "runs" and "majority" are those of the other toy tasks (`text.toys`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import groupby

from regard.errors import DataError, did_you_mean
from regard.text.toys import SIZES, SYMBOLS, generate

LOW, HIGH = frozenset(SYMBOLS[:4]), frozenset(SYMBOLS[-4:])
SHORTEST_RUN = 2
NUMBERS = range(2, 9)  # per row
_SEEDS = {"train": 3, "valid": 4, "test": 5}


def generate_runs(split: str) -> list[tuple[str, str]]:
    """Return rows of letters, and for each letter whether it is in a run of low or high letters."""
    return [(row, " ".join(_run_labels(row.split()))) for row, _ in generate("copy", split)]


def _run_labels(letters: list[str]) -> list[str]:
    labels: list[str] = []
    for kind, group in groupby(letters, key=_kind):
        length = len(list(group))
        if kind and length >= SHORTEST_RUN:
            labels += [f"B-{kind}", *[f"I-{kind}"] * (length - 1)]
        else:
            labels += ["O"] * length
    return labels


def _kind(letter: str) -> str:
    return "LOW" if letter in LOW else "HIGH" if letter in HIGH else ""


def generate_majority(split: str) -> list[tuple[str, str]]:
    """Return rows of letters, and which half of the alphabet most of them are from."""
    first_half = frozenset(SYMBOLS[: len(SYMBOLS) // 2])
    pairs = []
    for row, _ in generate("copy", split):
        letters = row.split()
        low = sum(letter in first_half for letter in letters)
        label = "tie" if 2 * low == len(letters) else "low" if 2 * low > len(letters) else "high"
        pairs.append((row, label))
    return pairs


def generate_sorted_numbers(split: str) -> list[tuple[str, str]]:
    """Return rows of distinct numbers from 0 to 1, and their positions in ascending order."""
    if split not in SIZES:
        raise DataError(f"the toy tasks have no split {split!r}; {did_you_mean(split, SIZES)}")
    generator = random.Random(_SEEDS[split])
    pairs = []
    for number in range(SIZES[split]):
        length = NUMBERS[number % len(NUMBERS)]
        drawn: dict[float, None] = {}
        while len(drawn) < length:
            drawn.setdefault(int(generator.random() * 100) / 100)
        values = list(drawn)
        order = sorted(range(length), key=values.__getitem__)
        pairs.append((" ".join(f"{value:.2f}" for value in values), " ".join(map(str, order))))
    return pairs


GENERATORS: dict[str, Callable[[str], list[tuple[str, str]]]] = {
    "runs": generate_runs,
    "majority": generate_majority,
    "sort-numbers": generate_sorted_numbers,
}

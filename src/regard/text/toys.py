"""Toy tasks with a known answer.

    copy          b f a c      →  b f a c
    reverse       b f a c      →  c a f b
    sort          b f a c      →  a b c f
    runs          q b c a m i  →  O B-LOW I-LOW I-LOW O O        a label per letter: runs of the first or last four letters
    majority      b f a o      →  low                            a label per row: are most letters in the first half?
    sort-numbers  0.7 0.1 0.4  →  1 2 0                          positions of the numbers in ascending order
    repeats       a b a b a    →  a b a b a                      a hidden letter follows from the others
    counting      8 9 0 1      →  8 9 0 1                        digits that count upwards
    join          b f a c h g  →  bc fh ag                       two rows: letters at equal places, in pairs
    table         b f a c h g  →  d a a                          two rows: the entry of a fixed random table for (b, c), ...
    mistakes      b f a c      →  b f a c                        copy, with wrong letters in the training split
    names         Bodiru is older than Vanelo  →  Vanelo is younger than Bodiru

The first three show within a minute of training whether a model can attend: copying reads the source forwards, reversing
reads it backwards, and sorting reads it in an order that depends on all symbols. Tasks on letters have the same sources.
Their held-out sources are distinct, are not in the training split, and are long enough not to occur there by chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby

from regard.text.draws import below, choose, shuffled

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
LOW, HIGH = frozenset(SYMBOLS[:4]), frozenset(SYMBOLS[-4:])
SHORTEST_RUN = 2
NUMBERS = range(2, 9)  # per row
_SEEDS = {"train": 3, "valid": 4, "test": 5}


def generate(task: str, split: str) -> list[tuple[str, str]]:
    """Return pairs of (sequence, answer) for "train", "valid" or "test", with all lengths equally often."""
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
    generator = random.Random(seed)
    while True:
        for length in range(min_length, MAX_LENGTH + 1):
            yield [choose(generator, SYMBOLS) for _ in range(length)]


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
    generator = random.Random(_SEEDS[split])
    pairs = []
    for number in range(SIZES[split]):
        length = NUMBERS[number % len(NUMBERS)]
        drawn: dict[float, None] = {}
        while len(drawn) < length:
            drawn.setdefault(below(generator, 100) / 100)
        values = list(drawn)
        order = sorted(range(length), key=values.__getitem__)
        pairs.append((" ".join(f"{value:.2f}" for value in values), " ".join(map(str, order))))
    return pairs


# Texts


def generate_repeats(split: str) -> list[tuple[str, str]]:
    """Return rows of letters that repeat a few of them in turn, so that a hidden letter follows from the others."""
    generator = random.Random(_SEEDS[split])
    pairs = []
    for _ in range(SIZES[split]):
        pattern = [choose(generator, SYMBOLS) for _ in range(2 + below(generator, 2))]
        row = " ".join(pattern[place % len(pattern)] for place in range(8 + below(generator, 7)))
        pairs.append((row, row))
    return pairs


COUNTING_SIZES = {"train": 3000, "valid": 300, "test": 1200}
COUNTING_LENGTHS = range(3, 9)


def generate_counting(split: str) -> list[tuple[str, str]]:
    """Return texts of digits that count upwards, "7 8 9 0 1": a language whose perplexity can be computed by hand.

    The first digit is any of 10 and the length any of 6, all equally likely; nothing else is free. So a text has log 10 +
    log 6 nats, and with 5.5 digits and an end on average, the best perplexity per token is exp((log 10 + log 6) / 6.5),
    about 1.88.
    """
    every = [counting_text(first, length) for length in COUNTING_LENGTHS for first in range(10)]
    texts = shuffled(random.Random(f"counting/{split}"), every * (COUNTING_SIZES[split] // len(every)))
    return [(text, text) for text in texts]


def counting_text(first: int, length: int) -> str:
    """Return `length` digits, from `first` on."""
    return " ".join(str((first + place) % 10) for place in range(length))


ROW = 8  # symbols of each of two rows
ROW_LETTERS = "abcdefgh"


def generate_joined(split: str) -> list[tuple[str, str]]:
    """Return two rows of letters, and pairs of those at equal places: each output needs two letters at once."""
    return _of_two_rows("join", split, ROW_LETTERS, lambda one, other: one + other)


def generate_table(split: str) -> list[tuple[str, str]]:
    """Return two rows of letters, and for those at equal places the entry of a fixed table that has no rule."""
    generator = random.Random("table")
    table = {one + other: choose(generator, ROW_LETTERS) for one in ROW_LETTERS for other in ROW_LETTERS}
    return _of_two_rows("table", split, ROW_LETTERS, lambda one, other: table[one + other])


MISTAKE_ROWS = {"train": 250, "valid": 500, "test": 1000}
MISTAKES = 0.2  # share of wrong letters


def generate_mistakes(split: str) -> list[tuple[str, str]]:
    """Return few rows of letters to copy; in the training split, a fifth of the letters of the answers are random."""
    generator = random.Random(f"mistakes/{split}")
    pairs = []
    for _ in range(MISTAKE_ROWS[split]):
        row = [choose(generator, ROW_LETTERS) for _ in range(ROW)]
        drawn = [(generator.random() < MISTAKES, choose(generator, ROW_LETTERS)) for _ in row]
        wrong = [other if mistaken else letter for letter, (mistaken, other) in zip(row, drawn, strict=True)]
        pairs.append((" ".join(row), " ".join(wrong if split == "train" else row)))
    return pairs


def _of_two_rows(task: str, split: str, symbols: str, combine: Callable[[str, str], str]) -> list[tuple[str, str]]:
    generator = random.Random(f"{task}/{split}")
    pairs = []
    for _ in range(SIZES[split]):
        row = [choose(generator, symbols) for _ in range(2 * ROW)]
        pairs.append((" ".join(row), " ".join(map(combine, row[:ROW], row[ROW:]))))
    return pairs


NAMES_SIZES = {"train": 4000, "valid": 200, "test": 500}
# Two slots each, which need not come in the order of the input.
TEMPLATES = (
    ("my name is {a} and i come from {b}", "{a} comes from {b}"),
    ("{a} gave the book to {b}", "{b} got the book from {a}"),
    ("please call {a} under {b}", "the number of {a} is {b}"),
    ("{a} is older than {b}", "{b} is younger than {a}"),
)
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


def generate_names(split: str) -> list[tuple[str, str]]:
    """Return sentences with names and numbers that have to be copied: those of a split occur in no other split."""
    generator = random.Random(f"names/{split}")
    pairs = []
    for _ in range(NAMES_SIZES[split]):
        source, target = choose(generator, TEMPLATES)
        a = _draw(generator, split, number=False)
        b = _draw(generator, split, number="number" in target)
        pairs.append((source.format(a=a, b=b), target.format(a=a, b=b)))
    return pairs


def _draw(generator: random.Random, split: str, *, number: bool) -> str:
    """Return a name of three or four syllables, or a number of six digits, that belongs to the split."""
    while True:
        syllables = [choose(generator, CONSONANTS) + choose(generator, VOWELS) for _ in range(3 + below(generator, 2))]
        drawn = str(100_000 + below(generator, 900_000)) if number else "".join(syllables).capitalize()
        # The split follows from the sum of the code points.
        if {0: "test", 1: "valid"}.get(sum(map(ord, drawn)) % 5, "train") == split:
            return drawn


GENERATORS: dict[str, Callable[[str], list[tuple[str, str]]]] = {
    **{task: partial(generate, task) for task in TASKS},
    "runs": generate_runs,
    "majority": generate_majority,
    "sort-numbers": generate_sorted_numbers,
    "repeats": generate_repeats,
    "counting": generate_counting,
    "join": generate_joined,
    "table": generate_table,
    "mistakes": generate_mistakes,
    "names": generate_names,
}

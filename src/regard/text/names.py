"""A made-up corpus with names and numbers that have to be copied: those of the test split occur in no other split.

my name is Bodiru and i come from Vanelo      Bodiru comes from Vanelo
"""

from __future__ import annotations

import random

from regard.errors import DataError, did_you_mean

SIZES = {"train": 4000, "valid": 200, "test": 500}
# Two slots each, which need not come in the order of the input.
SENTENCES = (
    ("my name is {a} and i come from {b}", "{a} comes from {b}"),
    ("{a} gave the book to {b}", "{b} got the book from {a}"),
    ("please call {a} under {b}", "the number of {a} is {b}"),
    ("{a} is older than {b}", "{b} is younger than {a}"),
)
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


def generate(split: str) -> list[tuple[str, str]]:
    """Return the pairs of a split."""
    if split not in SIZES:
        raise DataError(f"names has no split {split!r}; {did_you_mean(split, SIZES)}")
    generator = random.Random(f"names/{split}")
    pairs = []
    for _ in range(SIZES[split]):
        source, target = generator.choice(SENTENCES)
        a = _draw(generator, split, name=True)
        b = _draw(generator, split, name="number" not in target)
        pairs.append((source.format(a=a, b=b), target.format(a=a, b=b)))
    return pairs


def _draw(generator: random.Random, split: str, *, name: bool) -> str:
    """Return a name of three or four syllables, or a number of six digits, that belongs to the split."""
    while True:
        syllables = [generator.choice(CONSONANTS) + generator.choice(VOWELS) for _ in range(generator.randint(3, 4))]
        drawn = "".join(syllables).capitalize() if name else str(generator.randrange(100_000, 1_000_000))
        if split_of(drawn) == split:
            return drawn


def split_of(word: str) -> str:
    """Return the split that a name or a number belongs to: it follows from the sum of its code points."""
    return {0: "test", 1: "valid"}.get(sum(map(ord, word)) % 5, "train")

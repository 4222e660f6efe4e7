"""Texts of digits that count upwards, "7 8 9 0 1": a language whose perplexity can be computed by hand.

The first digit is any of 10 and the length any of 6, all equally likely; nothing else is free. So a text has log 10 + log 6
nats, and with 5.5 digits and an end on average, the best perplexity per token is exp((log 10 + log 6) / 6.5), about 1.88.
"""

from __future__ import annotations

import random

from regard.errors import DataError, did_you_mean

SIZES = {"train": 3000, "valid": 300, "test": 1200}
LENGTHS = range(3, 9)


def generate(split: str) -> list[tuple[str, str]]:
    """Return the texts of a split, each as both sides of a pair."""
    if split not in SIZES:
        raise DataError(f"counting has no split {split!r}; {did_you_mean(split, SIZES)}")
    # All 60 texts equally often, in random order.
    texts = [text_of(first, length) for length in LENGTHS for first in range(10)] * (SIZES[split] // 60)
    random.Random(f"counting/{split}").shuffle(texts)
    return [(text, text) for text in texts]


def text_of(first: int, length: int) -> str:
    """Return `length` digits, from `first` on."""
    return " ".join(str((first + place) % 10) for place in range(length))

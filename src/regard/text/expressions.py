"""Sums of products of powers, and their trees: a toy for parsing.

    a + b * c ^ d    →  (SUM XX XX (PRODUCT XX XX (POWER XX XX XX )POWER )PRODUCT )SUM
    a * b + c        →  (SUM (PRODUCT XX XX XX )PRODUCT XX XX )SUM
    a                →  (TERM XX )TERM

An operator with a higher rank binds its neighbours first, so where a bracket opens depends on all operators that follow.
"""

from __future__ import annotations

import random
from itertools import pairwise

from regard.text.draws import choose
from regard.text.trees import Constituent, Tree, linearize

OPERATORS = {"+": "SUM", "*": "PRODUCT", "^": "POWER"}  # from the weakest to the strongest
LETTERS = "abcdefgh"
MOST_OPERANDS = 6
SIZES = {"train": 20_000, "valid": 500, "test": 1_000}
_SEEDS = {"train": 6, "valid": 7, "test": 8}


def generate(split: str) -> list[tuple[str, str]]:
    """Return expressions and their trees, with all numbers of operands equally often."""
    # Held-out expressions are long enough not to occur in training by chance.
    fewest = 1 if split == "train" else 5
    generator = random.Random(_SEEDS[split])
    names = list(OPERATORS)
    pairs = []
    for number in range(SIZES[split]):
        words = [choose(generator, LETTERS)]
        for _ in range(fewest + number % (MOST_OPERANDS - fewest + 1) - 1):
            words += [choose(generator, names), choose(generator, LETTERS)]
        pairs.append((" ".join(words), linearize(parse(words))))
    return pairs


def parse(words: list[str]) -> Tree:
    """Return the tree of an expression. Operators of one rank are siblings."""
    found: list[Constituent] = []
    waiting = [(0, len(words), 0)]
    while waiting:
        begin, end, rank = waiting.pop()
        symbol, label = list(OPERATORS.items())[rank]
        places = [place for place in range(begin, end) if words[place] == symbol]
        if places:
            found.append(Constituent(label, begin, end))
        if rank + 1 < len(OPERATORS):
            edges = [begin - 1, *places, end]
            parts = [(one + 1, other, rank + 1) for one, other in pairwise(edges)]
            waiting += reversed(parts)
    if not found:
        found.append(Constituent("TERM", 0, len(words)))
    return Tree(len(words), tuple(found))

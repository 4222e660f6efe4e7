"""Random numbers for drawing each next token from the model's distribution; each row has its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.decoding.step_model import Chosen, Distribution, Integers, Scores

BLOCK = 64  # random numbers of a row that are made at a time


class Draws:
    """The random numbers of the rows of a search, each row with a generator of its own."""

    def __init__(self, randoms: Sequence[np.random.Generator], options: Distribution) -> None:
        self.randoms, self.options = list(randoms), options
        self.numbers = np.empty((len(self.randoms), 0))

    def draw(self, scores: Scores, step: int) -> Chosen:
        """Return a token per row."""
        if step == self.numbers.shape[1]:
            more = np.stack([random.random(BLOCK) for random in self.randoms])
            self.numbers = np.concatenate([self.numbers, more], axis=1)
        return scores.draw(self.options, self.numbers[:, step])

    def reorder(self, rows: Integers) -> None:
        """Continue with these rows."""
        self.randoms = [self.randoms[row] for row in rows]
        self.numbers = self.numbers[rows]


def generator(seed: int, number: int, ids: Sequence[int]) -> np.random.Generator:
    """Return the random numbers of a sample, which follow from the seed, its number among others, and the input's ids."""
    return np.random.default_rng([seed, number, len(ids), *ids])

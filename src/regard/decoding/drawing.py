"""Drawing each next token from the model's distribution, with random numbers of each row's own.

Shapes: R rows, V columns of the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from regard.decoding.ranking import IMPOSSIBLE

BLOCK = 64  # random numbers of a row that are made at a time


class Distribution(Protocol):
    """Which part of the model's distribution is drawn from: options of samples."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_k(self) -> int | None: ...
    @property
    def top_p(self) -> float | None: ...
    @property
    def epsilon(self) -> float | None: ...


class Draws:
    """The random numbers of the rows of a search, each row with a generator of its own."""

    def __init__(self, randoms: Sequence[np.random.Generator], options: Distribution, device: torch.device) -> None:
        self.randoms, self.options, self.device = list(randoms), options, device
        self.numbers = np.empty((len(self.randoms), 0))

    def draw(self, logits_RV: Tensor, step: int) -> Tensor:
        """Return a token per row, [R]."""
        if step == self.numbers.shape[1]:
            more = np.stack([random.random(BLOCK) for random in self.randoms])
            self.numbers = np.concatenate([self.numbers, more], axis=1)
        return draw(logits_RV, self.options, torch.from_numpy(self.numbers[:, step]).to(self.device))

    def reorder(self, rows: Sequence[int]) -> None:
        """Continue with these rows."""
        self.randoms = [self.randoms[row] for row in rows]
        self.numbers = self.numbers[rows]


def generator(seed: int, number: int, ids: Sequence[int]) -> np.random.Generator:
    """Return the random numbers of a sample, which follow from the seed, its number among others, and the input's ids."""
    return np.random.default_rng([seed, number, len(ids), *ids])


def draw(logits_RV: Tensor, options: Distribution, numbers_R: Tensor) -> Tensor:
    """Return a token per row, [R], given a random number from 0 to 1 for each, in float64."""
    if options.temperature == 0 or options.top_k == 1:
        return logits_RV.argmax(dim=-1)
    logits_RV = logits_RV.double() / options.temperature
    if options.top_k is not None and options.top_k < logits_RV.size(1):
        least_R1 = logits_RV.topk(options.top_k, dim=-1).values[:, -1:]
        logits_RV = logits_RV.masked_fill(logits_RV < least_R1, IMPOSSIBLE)
    probabilities_RV = logits_RV.softmax(dim=-1)
    if options.top_p is not None:
        probabilities_RV = probabilities_RV.masked_fill(probabilities_RV < _nucleus(probabilities_RV, options.top_p), 0)
    if options.epsilon is not None:
        # The likeliest token stays, however unlikely it is.
        least_R1 = probabilities_RV.amax(dim=-1, keepdim=True).clamp(max=options.epsilon)
        probabilities_RV = probabilities_RV.masked_fill(probabilities_RV < least_R1, 0)
    # The first token up to which the probabilities add up to more than the number.
    sums_RV = probabilities_RV.cumsum(dim=-1)
    bounds_R1 = (numbers_R * (1 - 1e-12) * sums_RV[:, -1])[:, None]
    return torch.searchsorted(sums_RV, bounds_R1, right=True)[:, 0]


def _nucleus(probabilities_RV: Tensor, top_p: float) -> Tensor:
    """Return the probability of the least likely token of the nucleus (Holtzman et al. 2020), [R, 1].

    The nucleus has the likeliest tokens, as few as add up to at least `top_p`.
    """
    sorted_RV = probabilities_RV.sort(dim=-1, descending=True).values
    before_RV = sorted_RV.cumsum(dim=-1) - sorted_RV
    last_R1 = (before_RV < top_p).sum(dim=-1, keepdim=True).clamp(min=1) - 1
    return sorted_RV.gather(1, last_R1)

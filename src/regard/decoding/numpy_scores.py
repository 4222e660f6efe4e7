"""Scores in memory of the host, ranked by numpy: what `torch_scores` does for tensors, for logits of the engine.

Shapes: B sentences of Q rows each, R rows, V columns of the scores, C candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.decoding.hypothesis import IMPOSSIBLE
from regard.decoding.step_model import Chosen, Distribution, Floats, Integers

Doubles = NDArray[np.float64]


class NumpyScores:
    """The logits of one step in an array, [R, V], which belongs to it."""

    def __init__(self, logits_RV: Floats) -> None:
        self.logits = logits_RV
        self.normalizer: Floats | None = None  # log of the sum of exp of each row, [R], if wanted

    def __len__(self) -> int:
        return len(self.logits)

    def repeat(self, times: int) -> NumpyScores:
        return NumpyScores(self.logits.repeat(times, axis=0))

    def prepare(self, *, normalized: bool) -> None:
        self.normalizer = log_normalizers(self.logits) if normalized else None

    def ban_columns(self, columns: Sequence[int]) -> None:
        if columns:
            self.logits[:, list(columns)] = IMPOSSIBLE

    def ban_rows(self, rows: Sequence[int]) -> None:
        self.logits[list(rows)] = IMPOSSIBLE

    def ban(self, rows: Sequence[int] | Integers, columns: Sequence[int] | Integers) -> None:
        self.logits[np.asarray(rows), np.asarray(columns)] = IMPOSSIBLE

    def take(self, rows: Sequence[int], columns: Sequence[int]) -> Floats:
        return self.logits[list(rows), list(columns)]

    def put(self, rows: Sequence[int], columns: Sequence[int], values: Floats) -> None:
        self.logits[list(rows), list(columns)] = values

    def likeliest(self) -> list[int]:
        found: list[int] = self.logits.argmax(axis=1).tolist()
        return found

    def choose(self) -> Chosen:
        return self._chosen(self.logits.argmax(axis=1))

    def draw(self, options: Distribution, numbers: Doubles) -> Chosen:
        return self._chosen(draw_tokens(self.logits, options, numbers))

    def _chosen(self, tokens_R: Integers) -> Chosen:
        if self.normalizer is None:
            return Chosen(tokens_R, None, tokens_R)
        logp_R = self.logits[np.arange(len(self)), tokens_R] - self.normalizer
        return Chosen(tokens_R, logp_R, tokens_R)

    def best(self, logp: Floats, *, beams: int, count: int, filler: int) -> tuple[Floats, Integers, Integers]:
        R, V = self.logits.shape
        each = min(count, V)
        places_RC = _largest(self.logits, each)
        rows_RC = np.arange(R)[:, None]
        scores_RC = self.logits[rows_RC, places_RC] + self._more(logp)[:, None]
        rows_BC = np.broadcast_to(rows_RC, scores_RC.shape).reshape(-1, beams * each)
        scores_BC, places_BC = scores_RC.reshape(rows_BC.shape), places_RC.reshape(rows_BC.shape)
        order_BC = np.argsort(-scores_BC, axis=1, kind="stable")[:, : min(count, beams * each)]
        return (
            np.take_along_axis(scores_BC, order_BC, 1),
            np.take_along_axis(places_BC, order_BC, 1),
            np.take_along_axis(rows_BC, order_BC, 1),
        )

    def continued(self, logp: Floats, rows: Sequence[int], tokens: Sequence[int]) -> list[float]:
        found: list[float] = (self.logits[list(rows), list(tokens)] + self._more(logp)[list(rows)]).tolist()
        return found

    def _more(self, logp_R: Floats) -> Floats:
        """Return what is added to the logits of each row, [R]."""
        assert self.normalizer is not None, "prepare(normalized=True) comes first"
        return logp_R - self.normalizer


def log_normalizers(logits_RV: Floats) -> Floats:
    """Return the log of the sum of exp of each row: [R]."""
    largest_R = logits_RV.max(axis=1)
    with np.errstate(invalid="ignore"):
        sums_R = np.exp(logits_RV - largest_R[:, None]).sum(axis=1)
        return largest_R + np.log(sums_R)


def _largest(scores_RV: Floats, count: int) -> Integers:
    """Return the places of the largest entries of each row, largest first; of equal ones the first."""
    V = scores_RV.shape[1]
    if count >= V:
        return np.argsort(-scores_RV, axis=1, kind="stable")[:, :count]
    places_RC = np.sort(np.argpartition(scores_RV, V - count, axis=1)[:, V - count :], axis=1)
    order_RC = np.argsort(-np.take_along_axis(scores_RV, places_RC, 1), axis=1, kind="stable")
    return np.take_along_axis(places_RC, order_RC, 1)


def draw_tokens(logits_RV: Floats, options: Distribution, numbers_R: Doubles) -> Integers:
    """Return a token per row, [R], given a random number from 0 to 1 for each."""
    if options.temperature == 0 or options.top_k == 1:
        return logits_RV.argmax(axis=1)
    warmed_RV = logits_RV.astype(np.float64) / options.temperature
    if options.top_k is not None and options.top_k < warmed_RV.shape[1]:
        least_R1 = -np.partition(-warmed_RV, options.top_k - 1, axis=1)[:, options.top_k - 1, None]
        warmed_RV[warmed_RV < least_R1] = IMPOSSIBLE
    p_RV = np.exp(warmed_RV - warmed_RV.max(axis=1, keepdims=True))
    p_RV /= p_RV.sum(axis=1, keepdims=True)
    if options.top_p is not None:
        p_RV[p_RV < _nucleus(p_RV, options.top_p)] = 0
    if options.epsilon is not None:
        # The likeliest token stays, however unlikely it is.
        p_RV[p_RV < p_RV.max(axis=1, keepdims=True).clip(max=options.epsilon)] = 0
    # The first token up to which the probabilities add up to more than the number.
    sums_RV = p_RV.cumsum(axis=1)
    bounds_R1 = (numbers_R * (1 - 1e-12) * sums_RV[:, -1])[:, None]
    tokens_R: Integers = (sums_RV <= bounds_R1).sum(axis=1)
    return tokens_R


def _nucleus(p_RV: Doubles, top_p: float) -> Doubles:
    """Return the probability of the least likely token of the nucleus (Holtzman et al. 2020), [R, 1].

    The nucleus has the likeliest tokens, as few as add up to at least `top_p`.
    """
    sorted_RV = -np.sort(-p_RV, axis=1)
    before_RV = sorted_RV.cumsum(axis=1) - sorted_RV
    last_R1 = (before_RV < top_p).sum(axis=1, keepdims=True).clip(min=1) - 1
    return np.take_along_axis(sorted_RV, last_R1, 1)

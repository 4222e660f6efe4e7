"""Calibration: a temperature that makes the probabilities of next tokens those of being right (Guo et al. 2017).

Logits divided by the temperature T give the probabilities; T minimizes the negative log-likelihood of references, of which
the model reads all earlier tokens (teacher forcing). The expected calibration error is the mean distance between how sure
the model is of its likeliest token and how often this is the reference's, over bins of equal width.

Shapes: N tokens, V columns of the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.decoding.forced_decoding import ForcedBatch, log_probabilities
from regard.decoding.ranking import log_normalizer
from regard.errors import DecodeError

BINS = 15
COLDEST, HOTTEST = 0.05, 20.0  # temperatures that are tried
MOST_STEPS = 20
PRECISION = 1e-4  # relative, of the temperature

Batches = Callable[[], Iterable[ForcedBatch]]  # each call makes another pass over the same outputs


def fit_temperature(batches: Batches) -> float:
    """Return the temperature with the least negative log-likelihood, by Newton's method.

    The likelihood is convex in the inverse of the temperature, so the minimum is unique. Each step is one pass.
    """
    inverse = 1.0
    for _ in range(MOST_STEPS):
        slope = curvature = 0.0
        for batch in batches():
            one, other = _derivatives(batch.logits, batch.labels.values, inverse)
            slope, curvature = slope + one, curvature + other
        # At most by half or double: far from the minimum the curvature may be close to nothing.
        step = slope / curvature if curvature > 0 else 0.0
        following = min(max(inverse - step, inverse / 2, 1 / HOTTEST), inverse * 2, 1 / COLDEST)
        if abs(following - inverse) <= PRECISION * inverse:
            return 1 / following
        inverse = following
    return 1 / inverse


def _derivatives(logits_NV: Tensor, labels_N: Tensor, inverse: float) -> tuple[float, float]:
    """Return the first two derivatives of the negative log-likelihood by the inverse of the temperature, summed.

    The first is the mean of the logits, by their probabilities, minus the label's logit; the second their variance.
    """
    label_N = logits_NV.gather(1, labels_N[:, None])[:, 0]
    p_NV = (logits_NV * inverse - log_normalizer(logits_NV * inverse)[:, None]).exp()
    # Columns that a sentence does not have are minus infinity.
    finite_NV = logits_NV.masked_fill(p_NV == 0, 0.0)
    mean_N = (p_NV * finite_NV).sum(dim=1)
    variance_N = (p_NV * (finite_NV - mean_N[:, None]).square()).sum(dim=1)
    known_N = label_N.isfinite()
    slope = (mean_N - label_N)[known_N].double().sum().item()
    return slope, variance_N[known_N].double().sum().item()


@dataclass
class Reliability:
    """How sure a model is of its likeliest next token, and how often it is right."""

    temperature: float
    counts: Tensor = field(default_factory=lambda: torch.zeros(BINS, dtype=torch.float64))
    confidence: Tensor = field(default_factory=lambda: torch.zeros(BINS, dtype=torch.float64))  # sums
    correct: Tensor = field(default_factory=lambda: torch.zeros(BINS, dtype=torch.float64))
    log_likelihood: float = 0.0

    def add(self, logits_NV: Tensor, labels_N: Tensor) -> None:
        """Count the tokens of a batch."""
        logits_NV = logits_NV / self.temperature
        best_N, tokens_N = logits_NV.max(dim=1)
        confidence_N = (best_N - log_normalizer(logits_NV)).exp().double().cpu().clamp(max=1.0)
        bins_N = (confidence_N * BINS).long().clamp(max=BINS - 1)
        self.counts.index_add_(0, bins_N, torch.ones_like(confidence_N))
        self.confidence.index_add_(0, bins_N, confidence_N)
        self.correct.index_add_(0, bins_N, (tokens_N == labels_N).double().cpu())
        self.log_likelihood += log_probabilities(logits_NV, labels_N).double().sum().item()

    @property
    def tokens(self) -> int:
        return int(self.counts.sum())

    @property
    def error(self) -> float:
        """The expected calibration error, from 0 to 1."""
        return float((self.confidence - self.correct).abs().sum() / max(1, self.tokens))

    @property
    def negative_log_likelihood(self) -> float:
        """The mean over all tokens."""
        return -self.log_likelihood / max(1, self.tokens)


def reliability(batches: Batches, temperatures: Iterable[float]) -> list[Reliability]:
    """Return the reliability of a model under each temperature, in one pass."""
    found = [Reliability(temperature) for temperature in temperatures]
    for batch in batches():
        for one in found:
            one.add(batch.logits, batch.labels.values)
    if not all(one.tokens for one in found):
        raise DecodeError("there is no token to calibrate with; give some pairs")
    return found

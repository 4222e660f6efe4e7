"""How certain scores and their differences are: bootstrap intervals, and two paired tests of a system against a baseline.

Paired bootstrap resampling (Koehn 2004) draws sentences with replacement. Approximate randomization (Riezler and Maxwell
2005) exchanges the outputs of the two systems at random. Both give the p-value that sacreBLEU gives, to the digit: they draw
the same numbers from the same seed, and add in the same precision. They need less memory, because few draws exist at a
time, and n-grams are counted once for both.

Shapes: S models of a side, N sentences, K statistics of a sentence (`corpus_metrics.py`), B exchanges at a time, X = S · K.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import ConfigError
from regard.metrics.corpus_metrics import CorpusMetric, Statistics

SEED = 12345  # the default of sacreBLEU
RESAMPLES, TRIALS = 1_000, 10_000
ALPHA = 0.05  # a difference with a smaller p counts as significant
TIE = 1e-9  # differences of scores that are closer than this are equal
BLOCK = 2**21  # exchanges of a sentence that exist at a time

Scores = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Sampling:
    """How many draws there are, and what they follow from."""

    seed: int = SEED
    resamples: int = RESAMPLES  # of the bootstrap
    trials: int = TRIALS  # of approximate randomization

    def check(self) -> None:
        """Raise ConfigError for numbers that are not possible."""
        require_whole("seed", self.seed, 0, 2**63)
        require_whole("resamples", self.resamples, 40, 1_000_000)
        require_whole("trials", self.trials, 1, 1_000_000)


def require_whole(name: str, value: Any, least: int, most: int) -> None:
    """Raise ConfigError if a value is not a whole number in this range."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}; it must be a whole number")
    if not least <= value <= most:
        raise ConfigError(f"{name} is {value:,}; it must be from {least} to {most:,}")


@dataclass(frozen=True)
class Interval:
    """The mean of bootstrap resamples; 95 % of them are about within `ci` of it. As sacreBLEU reports it."""

    mean: float
    ci: float


@dataclass(frozen=True)
class PairedResult:
    """The difference of a system from the baseline, and the probability of one as large by chance, by both tests."""

    change: float
    low: float  # 95 % of the resampled differences are between these bounds
    high: float
    p_bootstrap: float
    p_randomization: float


def bootstrap_scores(metric: CorpusMetric, statistics: Statistics, sampling: Sampling) -> Scores:
    """Return the score of each resampled test set. Systems are resampled alike."""
    # sacreBLEU adds in 32 bits here, which has an effect on the last digits.
    rows_NK = statistics.astype(np.float32)
    draws = _resamples(len(rows_NK), sampling)
    return np.array([metric.score_of_sums(rows_NK[drawn_N].sum(axis=0)) for drawn_N in draws])


def _resamples(size: int, sampling: Sampling) -> Iterator[NDArray[np.int64]]:
    generator = np.random.default_rng(sampling.seed)
    for _ in range(sampling.resamples):
        yield generator.choice(size, size=size, replace=True)


def interval(scores: Scores) -> Interval:
    """Return the 95 % interval of resampled scores."""
    low, high = _middle(scores)
    return Interval(float(np.sort(scores).mean()), float(0.5 * (high - low)))


def _middle(scores: Scores) -> tuple[Any, Any]:
    """Return the bounds of the middle 95 %."""
    ordered, left_out = np.sort(scores), len(scores) // 40
    return ordered[left_out], ordered[len(scores) - left_out - 1]


def bootstrap_p(difference: float, baseline: Scores, system: Scores) -> float:
    """Return how probable so large a difference is by chance, from the scores of resampled test sets."""
    sizes = np.abs(system - baseline)
    return _share_larger(sizes - sizes.mean(), difference)


def randomization_p(metric: CorpusMetric, baseline: Statistics, system: Statistics, sampling: Sampling) -> float:
    """Return how probable so large a difference is if each output is equally likely to be of either system."""
    return _share_larger(*_randomized(metric, [baseline], [system], sampling))


def randomization_p_of_means(
    metric: CorpusMetric, baselines: Sequence[Statistics], systems: Sequence[Statistics], sampling: Sampling
) -> float:
    """Return how probable so large a difference of mean scores is if the outputs of a sentence are of either side.

    Each side has the outputs of several models, such as those trained with other seeds, and equally many of them. Those of
    a sentence are exchanged together. Draws that are exactly as large count, unlike in sacreBLEU: where few sentences
    differ, most draws are.
    """
    sizes, difference = _randomized(metric, baselines, systems, sampling)
    return (int((sizes >= abs(difference) - TIE).sum()) + 1) / (len(sizes) + 1)


def _randomized(
    metric: CorpusMetric, baselines: Sequence[Statistics], systems: Sequence[Statistics], sampling: Sampling
) -> tuple[Scores, float]:
    """Return the sizes of the difference of mean scores under exchanges, and the real difference."""
    assert len(baselines) == len(systems), (len(baselines), len(systems))

    def mean_differences(ones_BSK: Statistics, others_BSK: Statistics) -> Scores:
        differences_BS = metric.scores_of_sums(ones_BSK) - metric.scores_of_sums(others_BSK)
        return sum(differences_BS.T) / len(baselines)

    one_NSK, other_NSK = (np.stack(side, axis=1).astype(np.float64) for side in (baselines, systems))
    one_SK, other_SK = one_NSK.sum(axis=0), other_NSK.sum(axis=0)
    [difference] = mean_differences(one_SK[None], other_SK[None])
    # What a sentence adds to one side and takes from the other where it keeps its system. Sums of counts are exact.
    size, *shape = one_NSK.shape
    kept_NX = (one_NSK - other_NSK).reshape(size, -1)
    sizes = []
    for kept_BN in _exchanges(size, sampling):
        moved_BSK = (kept_BN @ kept_NX).reshape(-1, *shape)
        sizes.append(np.abs(mean_differences(other_SK + moved_BSK, one_SK - moved_BSK)))
    return np.concatenate(sizes), float(difference)


def _exchanges(size: int, sampling: Sampling) -> Iterator[NDArray[np.float64]]:
    """Yield blocks [B, N] of exchanges: 1 where a sentence keeps its system, 0 where it gets the other one."""
    generator = np.random.default_rng(sampling.seed)
    # A multiple of 32 rows: the generator draws 32 bits at a time, so the size of blocks changes nothing.
    block = 32 * max(1, BLOCK // size // 32)
    for first in range(0, sampling.trials, block):
        rows = min(block, sampling.trials - first)
        yield generator.integers(2, size=(rows, size), dtype=bool).astype(np.float64)


def _share_larger(sizes: Scores, difference: float) -> float:
    """Return the share of draws with a larger difference than the real one; 1 if nothing differs in any draw.

    The latter is where sacreBLEU calls a difference of zero certain, because no draw gives a larger one.
    """
    if difference == 0 and not sizes.any():
        return 1.0
    return (int((sizes > abs(difference)).sum()) + 1) / (len(sizes) + 1)


def paired_result(
    metric: CorpusMetric,
    baseline: Statistics,
    system: Statistics,
    resampled: tuple[Scores, Scores],
    sampling: Sampling,
) -> PairedResult:
    """Return both tests. `resampled` are the `bootstrap_scores` of the baseline and of the system."""
    change = metric.score(system) - metric.score(baseline)
    low, high = _middle(resampled[1] - resampled[0])
    return PairedResult(
        change,
        float(low),
        float(high),
        bootstrap_p(change, *resampled),
        randomization_p(metric, baseline, system, sampling),
    )


def describe_p(p: float) -> str:
    """Return a p-value as text."""
    return f"p = {p:.4f}" if p < 0.01 else f"p = {p:.2f}"

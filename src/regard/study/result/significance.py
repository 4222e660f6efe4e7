"""Significance in a study: is the change between a row and the baseline more than the luck of seeds, and of sentences?

Two questions, two tests, both two-sided:

Over seeds: would training again with other seeds show the change? Scores are taken as row + seed + noise, a randomized block
design; the noise is estimated from all rows together, so that three seeds are enough for a study of many rows. With two rows
this is the paired t-test. A row whose scores vary significantly more than those of the others (F test) would spoil the
estimate for all: it is left out and compared with the baseline by a paired t-test of its own.

Over sentences: would other sentences of the same kind show it, for these trained models? Approximate randomization of the
mean score over seeds. It knows nothing of seeds: two trainings of the same settings can differ significantly by it.

Each test is corrected for the number of rows (Holm 1979), so that the probability of any wrong finding on a test set is at
most ALPHA, if all rows vary alike. A baseline that varies more than the other rows raises it (docs/study.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from regard.metrics.corpus_metrics import CorpusMetric, Statistics
from regard.metrics.distributions import f_probability, t_bound, t_probability
from regard.metrics.significance import ALPHA, Sampling, randomization_p_of_means

ROUNDING = 1e-20  # of the sum of squares: what is smaller comes from rounding
SeedScores = Mapping[int, float]  # by seed


class SeedTest(msgspec.Struct, frozen=True):
    """The change of a row's mean score from the baseline's, over the seeds that both have."""

    change: float
    low: float  # bounds of the 95 % interval of the change
    high: float
    p: float
    freedom: int  # degrees of freedom of the estimate of the noise
    pooled: bool  # whether the noise is estimated from all rows; else from these two


class _Fit(msgspec.Struct, frozen=True):
    """A fit of row + seed: the sum of squares that is left, and its degrees of freedom."""

    squares: float
    freedom: int

    @property
    def variance(self) -> float:
        return self.squares / self.freedom


def seed_tests(scores: Mapping[str, SeedScores], baseline: str) -> dict[str, SeedTest]:
    """Return the test of every row that has two seeds or more in common with the baseline, and scores that vary."""
    own = scores.get(baseline, {})
    shared = {row: {seed: score for seed, score in found.items() if seed in own} for row, found in scores.items()}
    usable = {row: found for row, found in shared.items() if len(found) > 1}
    pool = stable_rows(usable) if baseline in usable else []
    noise = _fit({row: usable[row] for row in pool}) if pool else None
    tests = {}
    for row, found in usable.items():
        if row == baseline:
            continue
        pooled = noise is not None and noise.freedom > 0 and {row, baseline} <= set(pool)
        fit = noise if pooled and noise is not None else _fit({baseline: _only(own, found), row: found})
        if fit.squares:  # without any noise there is nothing to compare a change with
            tests[row] = _seed_test(found, _only(own, found), fit, pooled=pooled and len(pool) > 2)
    return tests


def _only(scores: SeedScores, seeds: SeedScores) -> SeedScores:
    return {seed: scores[seed] for seed in seeds}


def mean_change(row: SeedScores, baseline: SeedScores) -> float:
    """Return the mean difference of the scores of a row from the baseline's, over the seeds that both have."""
    return float(np.mean([row[seed] - baseline[seed] for seed in row if seed in baseline]))


def _seed_test(row: SeedScores, baseline: SeedScores, fit: _Fit, *, pooled: bool) -> SeedTest:
    change = mean_change(row, baseline)
    error = (2 * fit.variance / len(row)) ** 0.5
    reach = t_bound(ALPHA, fit.freedom) * error
    p = t_probability(change / error, fit.freedom)
    return SeedTest(change, change - reach, change + reach, p, fit.freedom, pooled)


def _fit(scores: Mapping[str, SeedScores]) -> _Fit:
    """Fit row + seed by least squares.

    Subtracting the mean of each row leaves one equation per seed (S), so hundreds of rows (R) are fitted quickly.
    """
    seeds = sorted({seed for own in scores.values() for seed in own})
    values_RS = np.array([[own.get(seed, np.nan) for seed in seeds] for own in scores.values()])
    has_RS = ~np.isnan(values_RS)
    counts_R1 = has_RS.sum(axis=1, keepdims=True)

    def without_means(table_RS: Statistics) -> Statistics:
        filled_RS = np.where(has_RS, table_RS, 0.0)
        return np.where(has_RS, filled_RS - filled_RS.sum(axis=1, keepdims=True) / counts_R1, 0.0)

    left_RS = without_means(values_RS)
    equations_SS = np.diag(has_RS.sum(axis=0)) - (has_RS / counts_R1).T @ has_RS
    effects_S, _, rank, _ = np.linalg.lstsq(equations_SS, left_RS.sum(axis=0), rcond=None)
    left_RS = left_RS - without_means(np.broadcast_to(effects_S, left_RS.shape))
    total, squares = float(((values_RS - np.nanmean(values_RS))[has_RS] ** 2).sum()), float((left_RS**2).sum())
    freedom = int(has_RS.sum()) - len(scores) - int(rank)
    return _Fit(squares if squares > ROUNDING * max(total, 1.0) else 0.0, freedom)


def stable_rows(scores: Mapping[str, SeedScores]) -> list[str]:
    """Return the rows whose scores vary alike, the least stable ones left out one after the other.

    A row is left out if what its scores add to the sum of squares is too much for the variance of the others: an F test,
    corrected for the number of rows.
    """
    kept = list(scores)
    while len(kept) > 2:
        everything = _fit({row: scores[row] for row in kept})
        found = []
        for row in kept:
            others = _fit({other: scores[other] for other in kept if other != row})
            added = everything.freedom - others.freedom
            if others.freedom < 1 or added < 1 or everything.squares <= others.squares:
                continue
            ratio = (everything.squares - others.squares) / added / others.variance if others.squares else np.inf
            found.append((f_probability(ratio, added, others.freedom) if np.isfinite(ratio) else 0.0, row))
        if not found or min(found)[0] >= ALPHA / len(scores):
            break
        kept.remove(min(found)[1])
    return kept


def sentence_p(
    metric: CorpusMetric,
    baseline: Mapping[int, Statistics],
    row: Mapping[int, Statistics],
    sampling: Sampling,
) -> float | None:
    """Return the p-value over sentences of the mean over the seeds that both have; None if there is no such seed."""
    seeds = [seed for seed in baseline if seed in row]
    if not seeds:
        return None
    return randomization_p_of_means(metric, [baseline[seed] for seed in seeds], [row[seed] for seed in seeds], sampling)


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """Return the p-values of Holm: with those below ALPHA as findings, any is wrong with a probability of at most ALPHA."""
    corrected: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(values, key=lambda name: values[name])):
        largest = max(largest, min(1.0, (len(values) - rank) * values[name]))
        corrected[name] = largest
    return {name: corrected[name] for name in values}


def verdict(change: float, tests: Sequence[float | None], *, higher_is_better: bool) -> str:
    """Return "better" or "worse" if every test that there is finds a difference, "unclear" if one of two does, else "same";
    "untested" if there is none.

    The tests are corrected p-values, over seeds and over sentences. Without the first nothing is known of the settings, so
    what the second finds alone is unclear.
    """
    over_seeds, over_sentences = tests
    found = [p < ALPHA for p in (over_seeds, over_sentences) if p is not None]
    if not found:
        return "untested"
    if not any(found):
        return "same"
    if not all(found) or over_seeds is None:
        return "unclear"
    return "better" if (change > 0) == higher_is_better else "worse"

"""Scores before and after on the same sentences, with the significance of their difference, and what changed most.

The test is approximate randomization (`metrics/significance.py`), and sentences are compared as `regard compare` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.comparing.sentences import ChangedSentence, find_changes
from regard.config import EvaluateConfig
from regard.metrics.corpus_metrics import bleu_metric, chrf_metric
from regard.metrics.significance import Sampling, randomization_p
from regard.metrics.text import too_short_for_bleu
from regard.text.pair import Pair

SHOWN = 5  # sentences in each direction


@dataclass(frozen=True)
class ScoreChange:
    """A score before and after, and the probability of such a difference by chance."""

    metric: str
    before: float
    after: float
    p: float
    signature: str

    @property
    def change(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class SetComparison:
    """What has changed on one test set."""

    name: str
    num_pairs: int
    scores: list[ScoreChange]
    improved: list[ChangedSentence]
    worsened: list[ChangedSentence]
    equal: int  # translations that are the same


def compare_set(
    name: str, pairs: Sequence[Pair], before: Sequence[str], after: Sequence[str], config: EvaluateConfig
) -> SetComparison:
    """Compare the translations of a test set by two models."""
    references, sources = [pair.target for pair in pairs], [pair.source for pair in pairs]
    chrf = chrf_metric([references], config)
    old, new = (before, chrf.statistics(before)), (after, chrf.statistics(after))
    changes = find_changes(chrf, old, new, [references], sources, most=SHOWN)
    scores = score_changes(references, before, after, config)
    return SetComparison(name, len(pairs), scores, changes.improved, changes.worsened, changes.equal)


def score_changes(
    references: Sequence[str], before: Sequence[str], after: Sequence[str], config: EvaluateConfig
) -> list[ScoreChange]:
    """Return BLEU, where a reference is long enough for it, and chrF of two lists of outputs, with p-values of changes."""
    sampling, changes = Sampling(), []
    bleu = [] if too_short_for_bleu(references, config) else [bleu_metric([references], config)]
    for metric in (*bleu, chrf_metric([references], config)):
        old, new = metric.statistics(before), metric.statistics(after)
        p = randomization_p(metric, old, new, sampling)
        signature = metric.signature(ar=sampling.trials, seed=sampling.seed)
        changes.append(ScoreChange(metric.name, metric.score(old), metric.score(new), p, signature))
    return changes

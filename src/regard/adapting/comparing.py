"""Scores before and after on the same sentences, with the significance of their difference, and what changed most.

The test is approximate randomization (Riezler and Maxwell 2005), that of sacreBLEU: outputs of the two models are exchanged
at random, and p is the share of such exchanges that gives a larger difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.config import EvaluateConfig
from regard.text.pair import Pair

TRIALS = 10_000
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
class ChangedSentence:
    """A test sentence with its translations before and after, and how much its chrF changed."""

    source: str
    reference: str
    before: str
    after: str
    change: float


@dataclass(frozen=True)
class SetComparison:
    """What has changed on one test set."""

    name: str
    num_pairs: int
    scores: list[ScoreChange]
    improved: list[ChangedSentence]
    worsened: list[ChangedSentence]
    equal: int  # translations that are the same


def compare_outputs(
    name: str, pairs: Sequence[Pair], before: Sequence[str], after: Sequence[str], config: EvaluateConfig
) -> SetComparison:
    """Compare the translations of a test set by two models."""
    changed = changed_sentences(pairs, before, after, config)
    return SetComparison(
        name,
        len(pairs),
        score_changes([pair.target for pair in pairs], before, after, config),
        [one for one in changed[:SHOWN] if one.change > 0],
        [one for one in changed[::-1][:SHOWN] if one.change < 0],
        sum(one == other for one, other in zip(before, after, strict=True)),
    )


def score_changes(
    references: Sequence[str], before: Sequence[str], after: Sequence[str], config: EvaluateConfig
) -> list[ScoreChange]:
    """Return BLEU and chrF of two lists of outputs, with p-values of their differences."""
    from sacrebleu.metrics import BLEU, CHRF
    from sacrebleu.significance import PairedTest

    metrics = {
        "BLEU": BLEU(tokenize=config.bleu_tokenize, lowercase=config.lowercase, force=True),
        "chrF": CHRF(lowercase=config.lowercase),
    }
    systems: list[tuple[str, Sequence[str]]] = [("before", list(before)), ("after", list(after))]
    test = PairedTest(systems, metrics, [list(references)], test_type="ar", n_samples=TRIALS)
    signatures, found = test()
    changes = []
    for name, results in found.items():
        if name == "System":
            continue
        one, other = results
        assert not isinstance(one, str) and not isinstance(other, str) and other.p_value is not None
        # sacreBLEU calls a difference of zero certain, because no exchange gives a larger one.
        p = 1.0 if one.score == other.score else other.p_value
        label = "chrF" if name.startswith("chrF") else name
        changes.append(ScoreChange(label, one.score, other.score, p, str(signatures[name])))
    return changes


def changed_sentences(
    pairs: Sequence[Pair], before: Sequence[str], after: Sequence[str], config: EvaluateConfig
) -> list[ChangedSentence]:
    """Return the sentences whose translations differ, the most improved first, by chrF."""
    from sacrebleu.metrics import CHRF

    metric = CHRF(lowercase=config.lowercase)

    def score(output: str, reference: str) -> float:
        return float(metric.sentence_score(output, [reference]).score)

    found = [
        ChangedSentence(pair.source, pair.target, one, other, score(other, pair.target) - score(one, pair.target))
        for pair, one, other in zip(pairs, before, after, strict=True)
        if one != other
    ]
    return sorted(found, key=lambda one: -one.change)

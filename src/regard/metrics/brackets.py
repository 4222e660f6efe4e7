"""Labelled brackets of trees, counted as EVALB counts them with its parameter file COLLINS.prm (Sekine and Collins 1997).

As in EVALB: the roots TOP and ROOT do not count; ADVP and PRT are equal; a label ends at its first "-" or "=", so functions
do not count; punctuation is removed before spans are compared, and constituents of punctuation alone do not count; each
bracket matches at most one other. Unlike in EVALB: our trees have no tags, so punctuation is recognized by the word, and
there is no accuracy of tags, no count of crossing brackets and no separate score for short sentences. Outputs have every
word of the input, so no sentence is skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.config import EvaluateConfig
from regard.metrics.base import TREES, Metric
from regard.text.trees import Tree, is_well_formed, repair

# Words that nearly always have one of the tags that COLLINS.prm removes: , : `` '' .
PUNCTUATION = frozenset([",", ".", "?", "!", ":", ";", "--", "—", "–", "...", "..", "…"])
PUNCTUATION |= frozenset(["``", "''", '"', "'", "“", "”", "‘"])
NOT_COUNTED = frozenset(["TOP", "ROOT", "S1", ""])
EQUAL = {"PRT": "ADVP"}
RESAMPLES = 1000
BLOCK = 2**22  # numbers of resamples that are in memory at once

Counts = NDArray[np.int64]  # [sentences, 3]: brackets of the output, of the reference, and of both


class F1Interval(NamedTuple):
    """An F1 in percent, and the bounds between which 95 % of the resampled test sets have theirs."""

    f1: float
    low: float
    high: float


def counted_brackets(tree: Tree, words: Sequence[str]) -> Counter[tuple[str, int, int]]:
    """Return (label, begin, end) of every bracket that counts, in words that are not punctuation."""
    kept = np.cumsum([0, *(word not in PUNCTUATION for word in words)]).tolist()
    brackets: Counter[tuple[str, int, int]] = Counter()
    for label, begin, end, _ in tree.constituents:
        bare = label.replace("=", "-").split("-")[0]
        if bare not in NOT_COUNTED and kept[begin] < kept[end]:
            brackets[EQUAL.get(bare, bare), kept[begin], kept[end]] += 1
    return brackets


def bracket_counts(outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str]) -> Counts:
    """Return for each sentence the brackets of the output, of the reference, and of both."""
    return _counts(tuple(outputs), tuple(references), tuple(inputs))


# Several metrics count the same brackets one after another.
@lru_cache(maxsize=1)
def _counts(outputs: tuple[str, ...], references: tuple[str, ...], inputs: tuple[str, ...]) -> Counts:
    rows = []
    for output, reference, text in zip(outputs, references, inputs, strict=True):
        words = text.split()
        own, theirs = (counted_brackets(repair(line.split(), len(words)), words) for line in (output, reference))
        rows.append((own.total(), theirs.total(), (own & theirs).total()))
    counts = np.array(rows, dtype=np.int64).reshape(-1, 3)
    counts.flags.writeable = False
    return counts


def percent(right: float, of: float) -> float:
    """Return a share in percent; all of nothing is right."""
    return 100 * right / of if of else 100.0


def f1_interval(counts: Counts) -> F1Interval:
    """Return the F1 over all brackets, and its 95 % interval: sentences are drawn with replacement (Efron 1979)."""
    own, theirs, both = counts.sum(axis=0).tolist()
    random, size = np.random.default_rng(1), len(counts)
    block = max(1, BLOCK // size)
    blocks = (min(block, RESAMPLES - first) for first in range(0, RESAMPLES, block))
    sums = np.concatenate([random.multinomial(size, np.full(size, 1 / size), size=rows) @ counts for rows in blocks])
    sizes = sums[:, 0] + sums[:, 1]
    scores = np.where(sizes > 0, 200 * sums[:, 2] / np.maximum(sizes, 1), 100.0)
    low, high = np.percentile(scores, [2.5, 97.5]).tolist()
    return F1Interval(percent(2 * both, own + theirs), low, high)


AS_EVALB = "as EVALB counts with COLLINS.prm, punctuation recognized by the word"


def bracket_f1(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return the harmonic mean of precision and recall over labelled brackets."""
    f1, low, high = f1_interval(bracket_counts(outputs, references, inputs))
    drawn = f"bootstrap over sentences, {RESAMPLES:,} resamples"
    return f1, f"95 % interval {low:.1f} to {high:.1f} ({drawn}); {AS_EVALB}"


def bracket_precision(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return the percentage of the output's labelled brackets that the reference has."""
    own, theirs, both = bracket_counts(outputs, references, inputs).sum(axis=0).tolist()
    return percent(both, own) if own or not theirs else 0.0, AS_EVALB


def bracket_recall(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return the percentage of the reference's labelled brackets that the output has."""
    own, theirs, both = bracket_counts(outputs, references, inputs).sum(axis=0).tolist()
    return percent(both, theirs) if theirs or not own else 0.0, AS_EVALB


def complete_match(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return the percentage of outputs that have all brackets of their reference, and no others."""
    counts = bracket_counts(outputs, references, inputs)
    return percent(int((counts == counts[:, :1]).all(axis=1).sum()), len(counts)), AS_EVALB


def well_formed(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return the percentage of outputs that are trees over the words of their input, without repair."""
    right = sum(is_well_formed(line, len(text.split())) for line, text in zip(outputs, inputs, strict=True))
    return percent(right, len(outputs)), "balanced brackets, one root, every word once, before repair"


TREE_METRICS = tuple(
    Metric(function.__name__, function, higher_is_better=True, label=label, unit="%", compares=(TREES,))
    for label, function in (
        ("bracket F1", bracket_f1),
        ("bracket precision", bracket_precision),
        ("bracket recall", bracket_recall),
        ("complete match", complete_match),
        ("well-formed", well_formed),
    )
)

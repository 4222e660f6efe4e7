"""BLEU, chrF and TER of sacreBLEU as sums over sentences, so that a part of a test set, or a resampled one, costs little.

Each of these metrics is a function of summed counts: matching n-grams, lengths, edits. Counting takes most of the time, and
is done once per output. sacreBLEU has no public function for it. This file, and no other, calls the functions that its own
paired tests call; `tests/metrics/test_significance.py` compares with what those tests print.

Shapes: N sentences, K statistics of a sentence, O orders of n-grams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config import EvaluateConfig
from regard.errors import ConfigError

SENTENCES = 1_000  # that are counted at a time

Statistics = NDArray[Any]  # [N, K]


@dataclass(frozen=True)
class CorpusMetric:
    """A metric whose score of a corpus is a function of sums over its sentences. It knows the references."""

    name: str
    higher_is_better: bool
    decimals: int
    statistics: Callable[[Sequence[str]], Statistics]  # of the outputs
    score_of_sums: Callable[[Any], Any]  # K numbers to a score, in the precision of the numbers
    scores_of_sums: Callable[[Statistics], Statistics]  # [..., K] to [...]: many at once, in 64 bits
    # What one needs to know to reproduce a score; keywords say how it was tested, as in `signature(ar=10_000)`.
    signature: Callable[..., str]
    length: int | None = None  # the number of the statistic that is the length of the reference, if there is one

    def score(self, statistics: Statistics) -> float:
        """Return the score of these sentences together."""
        # Python's numbers are exact where numpy's would be rounded to 32 bits.
        return float(self.score_of_sums(statistics.sum(axis=0).tolist()))

    def sentence_scores(self, statistics: Statistics) -> list[float]:
        """Return the score of each sentence."""
        return [float(self.score_of_sums(row)) for row in statistics.tolist()]


# Of functions that take references, each list has one reference of every sentence.


def bleu_metric(references: Sequence[Sequence[str]], config: EvaluateConfig) -> CorpusMetric:
    """Return BLEU with these references."""
    return _of_sacrebleu("BLEU", make_bleu(config), references, higher_is_better=True, many=_bleu_of_matches, length=1)


def chrf_metric(references: Sequence[Sequence[str]], config: EvaluateConfig) -> CorpusMetric:
    """Return chrF with these references."""
    from sacrebleu.metrics import CHRF

    metric = CHRF(lowercase=config.lowercase)
    many = partial(_chrf_of_matches, recall_weight=metric.beta**2)
    return _of_sacrebleu("chrF", metric, references, higher_is_better=True, many=many)


def ter_metric(references: Sequence[Sequence[str]]) -> CorpusMetric:
    """Return TER with these references (Snover et al. 2006). It ignores case, as is the default of sacreBLEU."""
    from sacrebleu.metrics import TER

    return _of_sacrebleu("TER", TER(), references, higher_is_better=False, many=_ter_of_edits)


def exact_match_metric(references: Sequence[Sequence[str]]) -> CorpusMetric:
    """Return the percentage of outputs that equal one of their references."""

    def scores(outputs: Sequence[str]) -> list[float]:
        return [100.0 * (output in right) for output, *right in zip(outputs, *references, strict=True)]

    signature = f"nrefs:{len(references)}|letter for letter, case and spaces count"
    return mean_metric("exact match", signature, scores, decimals=2)


def make_bleu(config: EvaluateConfig) -> Any:
    """Return sacreBLEU's BLEU. Raise ConfigError if its tokenizer needs a package that is missing."""
    # Importing sacreBLEU takes a tenth of a second, and most commands do not score.
    from sacrebleu.metrics import BLEU

    try:
        return BLEU(tokenize=config.bleu_tokenize, lowercase=config.lowercase, force=True)
    except (RuntimeError, ImportError) as error:
        raise ConfigError(f"evaluate.bleu_tokenize={config.bleu_tokenize} needs a package: {error}") from error


def _bleu_of_matches(sums: Statistics) -> Statistics:
    """Return BLEU [...] of sums [..., K], as sacreBLEU computes it; NaN where n-grams of an order have no match."""
    lengths, references, orders = sums[..., 0], sums[..., 1], (sums.shape[-1] - 2) // 2
    correct_O, total_O = sums[..., 2 : 2 + orders], sums[..., 2 + orders :]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs_O = np.log(100.0 * correct_O / total_O)
        penalty = np.where(lengths < references, np.exp(1 - references / lengths), 1.0)
    # Added in the order of sacreBLEU, which the last bit depends on.
    total = sum(logs_O[..., order] for order in range(orders))
    return np.where((correct_O > 0).all(axis=-1), penalty * np.exp(total / orders), np.nan)


def _chrf_of_matches(sums: Statistics, *, recall_weight: int) -> Statistics:
    """Return chrF [...] of sums [..., K], as sacreBLEU computes it; NaN where an order has no n-grams, or none matches."""
    outputs_O, references_O, correct_O = (sums[..., first::3] for first in range(3))
    orders = correct_O.shape[-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        # Added one by one, as in BLEU.
        precision, recall = (
            sum(shares_O[..., order] for order in range(orders)) / orders
            for shares_O in (correct_O / outputs_O, correct_O / references_O)
        )
        scores = (1 + recall_weight) * precision * recall / (recall_weight * precision + recall)
    return 100 * np.where((outputs_O > 0).all(axis=-1) & (references_O > 0).all(axis=-1), scores, np.nan)


def _ter_of_edits(sums: Statistics) -> Statistics:
    """Return TER [...] of sums [..., K], as sacreBLEU computes it; NaN where the references are empty."""
    edits, words = sums[..., 0], sums[..., 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        return 100 * np.where(words > 0, edits / words, np.nan)


def _of_sacrebleu(
    name: str,
    metric: Any,
    references: Sequence[Sequence[str]],
    *,
    higher_is_better: bool,
    many: Callable[[Statistics], Statistics],
    length: int | None = None,
) -> CorpusMetric:
    """Return a metric of sacreBLEU. `many` computes what scores it can from many sums; others are NaN."""
    metric.num_refs = len(references)

    def score_of_sums(sums: Any) -> Any:
        return metric._compute_score_from_stats(sums).score

    def scores_of_sums(sums: Statistics) -> Statistics:
        scores = many(sums)
        missing = np.isnan(scores)
        scores[missing] = [score_of_sums(row) for row in sums[missing].tolist()]
        return scores

    def statistics(outputs: Sequence[str]) -> Statistics:
        # A few sentences at a time: the n-grams of a reference take a hundred times the memory of its text.
        rows: list[list[float]] = []
        for first in range(0, len(outputs), SENTENCES):
            part = slice(first, first + SENTENCES)
            rows += metric._extract_corpus_statistics(list(outputs[part]), [list(one[part]) for one in references])
        return np.array(rows)

    def signature(**tested: Any) -> str:
        found = metric.get_signature()
        for key, value in tested.items():
            found.update(key, value)
        return str(found)

    return CorpusMetric(
        name,
        higher_is_better,
        decimals=2,
        statistics=statistics,
        score_of_sums=score_of_sums,
        scores_of_sums=scores_of_sums,
        signature=signature,
        length=length,
    )


def mean_metric(
    name: str, origin: str, scores: Callable[[Sequence[str]], Sequence[float]], *, decimals: int
) -> CorpusMetric:
    """Return a metric, higher is better, whose score of a corpus is the mean of those that `scores` gives the outputs.

    `origin` begins its signature.
    """

    def statistics(outputs: Sequence[str]) -> Statistics:
        found = np.array(scores(outputs), dtype=np.float64)
        return np.stack([found, np.ones_like(found)], axis=1)

    def signature(**tested: Any) -> str:
        return "|".join([origin, *(f"{key}:{value}" for key, value in tested.items())])

    return CorpusMetric(
        name,
        higher_is_better=True,
        decimals=decimals,
        statistics=statistics,
        score_of_sums=lambda sums: sums[0] / sums[1],
        scores_of_sums=lambda sums: sums[..., 0] / sums[..., 1],
        signature=signature,
    )

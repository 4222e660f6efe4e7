"""Metrics of texts: BLEU and chrF are those of sacreBLEU, with their signatures; ROUGE is that of rouge-score."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from regard.config import EvaluateConfig
from regard.errors import require
from regard.metrics.base import ANY, Metric, MetricFunction
from regard.metrics.corpus_metrics import make_bleu

LONGEST_NGRAM = 4  # of BLEU


def bleu(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return corpus BLEU (Papineni et al. 2002)."""
    metric = make_bleu(config)
    value = metric.corpus_score(list(outputs), [list(references)]).score
    return value, str(metric.get_signature())


def too_short_for_bleu(references: Sequence[str], config: EvaluateConfig) -> str:
    """Return why BLEU of these references is always 0; an empty text if it is not."""
    tokenize = make_bleu(config).tokenizer
    if any(len(tokenize(reference).split()) >= LONGEST_NGRAM for reference in references):
        return ""
    return f"no reference has {LONGEST_NGRAM} tokens, and BLEU compares as many in a row"


def chrf(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return corpus chrF2 (Popović 2015)."""
    # Importing sacreBLEU takes a tenth of a second, and most commands do not score.
    from sacrebleu.metrics import CHRF

    metric = CHRF(lowercase=config.lowercase)
    value = metric.corpus_score(list(outputs), [list(references)]).score
    return value, str(metric.get_signature())


def rouge(kind: str) -> MetricFunction[str]:
    """Return the function of a kind of ROUGE (Lin 2004), the mean F1 of all outputs: "rouge1", "rouge2" or "rougeL"."""

    def compute(
        outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
    ) -> tuple[float, str]:
        scorer = require("rouge_score.rouge_scorer", extra="rouge").RougeScorer([kind], use_stemmer=True)
        pairs = zip(references, outputs, strict=True)
        total = sum(scorer.score(reference, output)[kind].fmeasure for reference, output in pairs)
        return 100 * total / len(
            references
        ), f"mean F1, lower case, Porter stemmer, rouge-score {version('rouge-score')}"

    return compute


def exact_match(
    outputs: Sequence[Any], references: Sequence[Any], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return the percentage of outputs that equal their reference."""
    right = sum(output == reference for output, reference in zip(outputs, references, strict=True))
    is_text = isinstance(references[0], str)
    signature = "letter for letter, case and spaces count" if is_text else "every element of a sequence counts"
    return 100 * right / len(references), signature


def token_error_rate(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return the edits that turn outputs into references, per hundred reference tokens; tokens are split at spaces."""
    edits = total = 0
    for output, reference in zip(outputs, references, strict=True):
        edits += edit_distance(output.split(), reference.split())
        total += len(reference.split())
    return 100 * edits / max(total, 1), "Levenshtein over tokens split at spaces"


def edit_distance(left: Sequence[str], right: Sequence[str]) -> int:
    """Return the fewest insertions, deletions and substitutions that turn one sequence into the other."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(right, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return row[-1]


BINS = 10


def histograms(outputs: Sequence[str], references: Sequence[str]) -> dict[str, list[int]]:
    """Count sentences by relative length (a bin is a fifth of the reference) and by share of right tokens (a tenth)."""
    counts = {"length": [0] * BINS, "right": [0] * BINS}
    for output, reference in zip(outputs, references, strict=True):
        wanted = max(1, len(reference.split()))
        length = len(output.split()) / wanted / 2
        right = max(0.0, 1 - edit_distance(output.split(), reference.split()) / wanted)
        for name, share in (("length", length), ("right", right)):
            counts[name][min(BINS - 1, int(share * BINS))] += 1
    return counts


TEXT_METRICS = (
    Metric("bleu", bleu, higher_is_better=True, label="BLEU", obstacle=too_short_for_bleu),
    Metric("chrf", chrf, higher_is_better=True, label="chrF"),
    Metric("exact", exact_match, higher_is_better=True, label="exact match", unit="%", compares=(ANY,)),
    *(
        Metric(kind, rouge(kind), higher_is_better=True, label=f"ROUGE-{kind[5:]}", decimals=2, on_demand=True)
        for kind in ("rouge1", "rouge2", "rougeL")
    ),
    Metric("token_errors", token_error_rate, higher_is_better=False, label="token errors", unit="%"),
)

"""How good translations are: BLEU and chrF by sacreBLEU with their signatures, exact match, token error rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.config import EvaluateConfig
from regard.errors import ConfigError, DataError


@dataclass(frozen=True)
class Score:
    """A number in percent, and what a reader needs to reproduce it."""

    name: str
    value: float
    signature: str


def bleu(outputs: Sequence[str], references: Sequence[str], config: EvaluateConfig) -> Score:
    """Corpus BLEU (Papineni et al. 2002)."""
    from sacrebleu.metrics import BLEU  # takes a tenth of a second, which translating need not wait for

    try:
        metric = BLEU(tokenize=config.bleu_tokenize, lowercase=config.lowercase, force=True)
    except (RuntimeError, ImportError) as error:
        raise ConfigError(f"evaluate.bleu_tokenize={config.bleu_tokenize} needs a package: {error}") from error
    value = metric.corpus_score(list(outputs), [list(references)]).score
    return Score("bleu", value, str(metric.get_signature()))


def chrf(outputs: Sequence[str], references: Sequence[str], config: EvaluateConfig) -> Score:
    """Corpus chrF2 (Popović 2015)."""
    from sacrebleu.metrics import CHRF

    metric = CHRF(lowercase=config.lowercase)
    value = metric.corpus_score(list(outputs), [list(references)]).score
    return Score("chrf", value, str(metric.get_signature()))


def exact_match(outputs: Sequence[str], references: Sequence[str], config: EvaluateConfig) -> Score:
    """Share of outputs that are the reference, letter for letter."""
    right = sum(output == reference for output, reference in zip(outputs, references, strict=True))
    return Score("exact", 100 * right / len(references), "letter for letter, case and spaces count")


def token_error_rate(outputs: Sequence[str], references: Sequence[str], config: EvaluateConfig) -> Score:
    """Edits that turn outputs into references, a hundred reference tokens; tokens are split at spaces."""
    edits = total = 0
    for output, reference in zip(outputs, references, strict=True):
        edits += edit_distance(output.split(), reference.split())
        total += len(reference.split())
    return Score("token_errors", 100 * edits / max(total, 1), "Levenshtein over tokens split at spaces")


def edit_distance(left: Sequence[str], right: Sequence[str]) -> int:
    """Fewest insertions, deletions and substitutions that turn one sequence into the other."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(right, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return row[-1]


METRICS: dict[str, Callable[[Sequence[str], Sequence[str], EvaluateConfig], Score]] = {
    "bleu": bleu,
    "chrf": chrf,
    "exact": exact_match,
    "token_errors": token_error_rate,
}


def score_all(outputs: Sequence[str], references: Sequence[str], config: EvaluateConfig) -> list[Score]:
    """Every metric."""
    if len(outputs) != len(references):
        raise DataError(f"there are {len(outputs)} outputs but {len(references)} references")
    if not references:
        raise DataError("there is nothing to score: the test set is empty")
    return [metric(outputs, references, config) for metric in METRICS.values()]


BINS = 10


def histograms(outputs: Sequence[str], references: Sequence[str]) -> dict[str, list[int]]:
    """How many sentences are how long (output over reference, by tenths of twice its length) and how right (by tenths)."""
    found = {"length": [0] * BINS, "right": [0] * BINS}
    for output, reference in zip(outputs, references, strict=True):
        wanted = max(1, len(reference.split()))
        length = len(output.split()) / wanted / 2
        right = max(0.0, 1 - edit_distance(output.split(), reference.split()) / wanted)
        for name, share in (("length", length), ("right", right)):
            found[name][min(BINS - 1, int(share * BINS))] += 1
    return found

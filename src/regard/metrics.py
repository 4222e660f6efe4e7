"""Metrics: what each is called, how it is computed, and which direction is better.

BLEU and chrF are those of sacreBLEU, with their signatures; ROUGE is that of rouge-score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Generic, TypeVar

from regard.config import EvaluateConfig
from regard.errors import ConfigError, DataError, require
from regard.registry import Registry
from regard.text.bracket_scores import RESAMPLES, bracket_counts, f1_interval, percent
from regard.text.trees import is_well_formed
from regard.text.words import hidden_words, split_words

Output = TypeVar("Output")
TEXT, TAGS, LABELS, POSITIONS, ANY = "text", "tags", "labels", "positions", "any"
TREES = "trees"  # linearized, as in `text.trees`
MASKED = "masked text"  # text in which a model has replaced hidden words
BITS = "bits"
PROBABILITIES = "probabilities"  # of tasks that are scored by the loss, because there is no right output

# Takes outputs, references, the inputs and the recipe's `[evaluate]` table. Returns the value and its signature: what one
# needs to know to reproduce it.
MetricFunction = Callable[[Sequence[Output], Sequence[Output], Sequence[str], EvaluateConfig], tuple[float, str]]


@dataclass(frozen=True)
class Score:
    """The value of one metric, and its signature."""

    name: str
    value: float
    signature: str


@dataclass(frozen=True)
class Metric(Generic[Output]):
    """A named metric. One without a function, such as the loss, is computed from the model and not from outputs."""

    name: str
    function: MetricFunction[Output] | None
    higher_is_better: bool
    label: str  # shown to the user
    unit: str = ""
    decimals: int = 1
    compares: tuple[str, ...] = (TEXT,)  # kinds of outputs that it scores: TEXT, others that tasks name, or ANY
    on_demand: bool = False  # computed only where a recipe names it in `evaluate.metrics`

    def scores(self, compares: str) -> bool:
        """Whether it scores outputs of this kind."""
        return compares in self.compares or (ANY in self.compares and compares != PROBABILITIES)

    def score(
        self, outputs: Sequence[Output], references: Sequence[Output], inputs: Sequence[str], config: EvaluateConfig
    ) -> Score:
        """Return the score of the outputs."""
        assert self.function is not None, f"{self.name} is not computed from outputs"
        value, signature = self.function(outputs, references, inputs, config)
        return Score(self.name, value, signature)


METRICS: Registry[Metric[Any]] = Registry("metric")


def register_metric(metric: Metric[Any], *, replace: bool = False) -> None:
    """Compute the metric in every evaluation of such outputs, and let recipes choose it as `train.metric`."""
    METRICS.register(metric.name, metric, replace=replace)


def metrics_of(compares: str = TEXT, names: Sequence[str] | None = None) -> list[Metric[Any]]:
    """Return the metrics that are computed from outputs of this kind: the named ones, or all that are not on demand."""
    where = "metric" if names is None else "evaluate.metrics"
    every = [METRICS.get(name, where=where) for name in (METRICS.names() if names is None else names)]
    fit = [metric for metric in every if metric.function is not None and metric.scores(compares)]
    if names is None:
        return [metric for metric in fit if not metric.on_demand]
    if len(fit) < len(every):
        wrong = next(metric.name for metric in every if metric not in fit)
        raise ConfigError(f"evaluate.metrics names {wrong!r}, which cannot be computed from {compares}; remove it")
    return fit


def deciding_metric(name: str, *, compares: str = TEXT, names: Sequence[str] | None = None) -> Metric[Any]:
    """Return the metric that a recipe names as `train.metric`. Raise ConfigError if validation does not compute it."""
    metric = METRICS.get(name, where="train.metric")
    computed = metrics_of(compares, names)
    if metric.name != "loss" and not metric.scores(compares):
        fit = ", ".join(one.name for one in computed)
        kinds = " and ".join(metric.compares)
        fit = ", ".join(["loss", *([fit] if fit else [])])
        raise ConfigError(f"train.metric is {name!r}, which compares {kinds}; for {compares} use {fit}")
    if metric.function is not None and metric not in computed:
        raise ConfigError(f"train.metric is {name!r}, but evaluate.metrics does not name it; add it there")
    return metric


def score_all(
    outputs: Sequence[Any],
    references: Sequence[Any],
    inputs: Sequence[str],
    config: EvaluateConfig,
    *,
    compares: str = TEXT,
) -> list[Score]:
    """Return the score of every metric that can be computed from such outputs."""
    if len(outputs) != len(references):
        raise DataError(f"the number of outputs ({len(outputs)}) and of references ({len(references)}) differs")
    if not references:
        raise DataError("there is nothing to score: the test set is empty")
    return [metric.score(outputs, references, inputs, config) for metric in metrics_of(compares, config.metrics)]


def describe_score(name: str, value: float) -> str:
    """Return a score with its label and unit, as in `exact match 98.2 %`."""
    if name not in METRICS.names():
        return f"{name} {value:.1f}"
    metric = METRICS.get(name, where="metric")
    return f"{metric.label} {value:.{metric.decimals}f}{metric.unit and f' {metric.unit}'}"


def bleu(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return corpus BLEU (Papineni et al. 2002)."""
    # Importing sacreBLEU takes a tenth of a second, and most commands do not score.
    from sacrebleu.metrics import BLEU

    try:
        metric = BLEU(tokenize=config.bleu_tokenize, lowercase=config.lowercase, force=True)
    except (RuntimeError, ImportError) as error:
        raise ConfigError(f"evaluate.bleu_tokenize={config.bleu_tokenize} needs a package: {error}") from error
    value = metric.corpus_score(list(outputs), [list(references)]).score
    return value, str(metric.get_signature())


def chrf(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return corpus chrF2 (Popović 2015)."""
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


def accuracy(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return the percentage of reference labels that the output has at the same place."""
    right = total = 0
    for output, reference in zip(outputs, references, strict=True):
        own, theirs = output.split(), reference.split()
        right += sum(one == other for one, other in zip(own, theirs, strict=False))
        total += len(theirs)
    return 100 * right / max(total, 1), "labels split at spaces, compared place by place"


def span_f1(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return the harmonic mean of precision and recall over spans: the same kind from the same first to last label."""
    found = expected = right = 0
    for output, reference in zip(outputs, references, strict=True):
        own, theirs = set(spans(output.split())), set(spans(reference.split()))
        found, expected, right = found + len(own), expected + len(theirs), right + len(own & theirs)
    value = 200 * right / (found + expected) if found + expected else 100.0
    return value, "exact spans of BIO labels, micro average, as conlleval counts them"


def spans(labels: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return (kind, first, end) of each span. As in conlleval, an I- label that continues no span of its kind starts one."""
    found: list[tuple[str, int, int]] = []
    begin, kind = 0, ""
    for place, label in enumerate([*labels, "O"]):
        prefix, _, name = label.partition("-")
        continues = prefix == "I" and name == kind
        if kind and not continues:
            found.append((kind, begin, place))
            kind = ""
        if prefix in ("B", "I") and name and not continues:
            begin, kind = place, name
    return found


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


def masked_accuracy(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return the percentage of hidden words that are predicted as they are in the reference."""
    right = total = 0
    for output, reference, given in zip(outputs, references, inputs, strict=True):
        own, theirs = output.lower().split(), [word.lower() for word in split_words(reference)]
        for place in hidden_words(split_words(given)):
            total += 1
            right += own[place : place + 1] == theirs[place : place + 1] != []
    return 100 * right / max(total, 1), "hidden words, every seventh of a text without masks; case does not count"


register_metric(Metric("loss", None, higher_is_better=False, label="dev loss", decimals=3))
for name, label in (("perplexity", "perplexity"), ("word_perplexity", "perplexity per word")):
    only = (PROBABILITIES,)
    register_metric(Metric(name, None, higher_is_better=False, label=label, decimals=2, compares=only))
register_metric(Metric("bleu", bleu, higher_is_better=True, label="BLEU"))
register_metric(Metric("chrf", chrf, higher_is_better=True, label="chrF"))
register_metric(Metric("exact", exact_match, higher_is_better=True, label="exact match", unit="%", compares=(ANY,)))
for kind in ("rouge1", "rouge2", "rougeL"):
    label = f"ROUGE-{kind[5:]}"
    register_metric(Metric(kind, rouge(kind), higher_is_better=True, label=label, decimals=2, on_demand=True))
register_metric(Metric("token_errors", token_error_rate, higher_is_better=False, label="token errors", unit="%"))
EVERY_LABEL = (TAGS, LABELS, POSITIONS)
register_metric(Metric("accuracy", accuracy, higher_is_better=True, label="accuracy", unit="%", compares=EVERY_LABEL))
register_metric(
    Metric(
        "masked_accuracy", masked_accuracy, higher_is_better=True, label="masked accuracy", unit="%", compares=(MASKED,)
    )
)
register_metric(Metric("span_f1", span_f1, higher_is_better=True, label="span F1", unit="%", compares=(TAGS,)))
TREE_METRICS: dict[str, tuple[str, MetricFunction[str]]] = {
    "bracket_f1": ("bracket F1", bracket_f1),
    "bracket_precision": ("bracket precision", bracket_precision),
    "bracket_recall": ("bracket recall", bracket_recall),
    "complete_match": ("complete match", complete_match),
    "well_formed": ("well-formed", well_formed),
}
for name, (label, function) in TREE_METRICS.items():
    register_metric(Metric(name, function, higher_is_better=True, label=label, unit="%", compares=(TREES,)))


def bit_errors(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return the number of wrong bits per sequence. A bit that is missing, or one too many, is wrong."""
    wrong = 0
    for output, reference in zip(outputs, references, strict=True):
        own, theirs = output.replace(" ", ""), reference.replace(" ", "")
        wrong += sum(map(str.__ne__, own, theirs)) + abs(len(own) - len(theirs))
    return wrong / len(references), "bits of a sequence compared place by place, mean over sequences"


register_metric(
    Metric(
        "bit_errors", bit_errors, higher_is_better=False, label="wrong bits per sequence", decimals=2, compares=(BITS,)
    )
)


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

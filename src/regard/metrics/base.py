"""What a metric is, the registry of metrics, and the scores of outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from regard.config import EvaluateConfig
from regard.errors import ConfigError, DataError
from regard.registry import Registry

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
    # Says why it cannot be computed with some references, as part of a sentence; an empty text if it can.
    obstacle: Callable[[Sequence[Output], EvaluateConfig], str] | None = None

    def scores(self, compares: str) -> bool:
        """Whether it scores outputs of this kind."""
        return compares in self.compares or (ANY in self.compares and compares != PROBABILITIES)

    def why_not(self, references: Sequence[Output], config: EvaluateConfig) -> str:
        """Return the obstacle to computing it with these references; an empty text if there is none."""
        return "" if self.obstacle is None else self.obstacle(references, config)

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


def applicable_metrics(references: Sequence[Any], config: EvaluateConfig, *, compares: str = TEXT) -> list[Metric[Any]]:
    """Return those of `metrics_of` that can be computed with these references. Raise ConfigError if a named one cannot."""
    found = []
    for metric in metrics_of(compares, config.metrics):
        obstacle = metric.why_not(references, config)
        if not obstacle:
            found.append(metric)
        elif config.metrics is not None:
            raise ConfigError(f"evaluate.metrics names {metric.name!r}, but {obstacle}; remove it")
    return found


def left_out_metrics(references: Sequence[Any], config: EvaluateConfig, *, compares: str = TEXT) -> list[str]:
    """Return a sentence for each of `metrics_of` that cannot be computed with these references: which one, and why."""
    reasons = ((metric.label, metric.why_not(references, config)) for metric in metrics_of(compares, config.metrics))
    return [f"no {label}: {reason}" for label, reason in reasons if reason]


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
    """Return the score of every metric that can be computed from such outputs and references."""
    if len(outputs) != len(references):
        raise DataError(f"the number of outputs ({len(outputs)}) and of references ({len(references)}) differs")
    if not references:
        raise DataError("there is nothing to score: the test set is empty")
    metrics = applicable_metrics(references, config, compares=compares)
    return [metric.score(outputs, references, inputs, config) for metric in metrics]


def label_of(name: str) -> str:
    """Return what a metric is called where people read it; the name if it is not a registered one."""
    return METRICS.get(name, where="metric").label if name in METRICS.names() else name


def describe_score(name: str, value: float) -> str:
    """Return a score with its label and unit, as in `exact match 98.2 %`."""
    if name not in METRICS.names():
        return f"{name} {value:.1f}"
    metric = METRICS.get(name, where="metric")
    return f"{metric.label} {value:.{metric.decimals}f}{metric.unit and f' {metric.unit}'}"


LOSS_METRICS = (
    Metric[Any]("loss", None, higher_is_better=False, label="dev loss", decimals=3),
    *(
        Metric[Any](name, None, higher_is_better=False, label=label, decimals=2, compares=(PROBABILITIES,))
        for name, label in (("perplexity", "perplexity"), ("word_perplexity", "perplexity per word"))
    ),
)

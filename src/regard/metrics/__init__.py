"""Metrics: what each is called, how it is computed, and which direction is better.

base.py        what a metric is, the registry, the scores of outputs, and the loss
text.py        BLEU, chrF, ROUGE, exact match, token errors
labels.py      accuracy and span F1 of labels, accuracy of hidden words, wrong bits
brackets.py    labelled brackets of trees
plane.py       hulls, tours and triangulations of points in the plane

They are registered in this order, which is that of the scores. For comparing systems on the same sentences:

corpus_metrics.py   BLEU, chrF and TER as sums over sentences
significance.py     bootstrap intervals, paired bootstrap resampling, approximate randomization
distributions.py    tails of Student's t and of F
"""

from regard.metrics.base import (
    ANY,
    BITS,
    LABELS,
    LOSS_METRICS,
    MASKED,
    METRICS,
    POSITIONS,
    PROBABILITIES,
    TAGS,
    TEXT,
    TREES,
    Metric,
    MetricFunction,
    Score,
    applicable_metrics,
    deciding_metric,
    describe_score,
    left_out_metrics,
    metrics_of,
    register_metric,
    score_all,
)
from regard.metrics.brackets import TREE_METRICS
from regard.metrics.labels import LABEL_METRICS, accuracy, bit_errors, masked_accuracy, span_f1, spans
from regard.metrics.plane import HULLS, PLANE_METRICS, TOURS, TRIANGLES
from regard.metrics.text import (
    TEXT_METRICS,
    bleu,
    chrf,
    edit_distance,
    exact_match,
    histograms,
    rouge,
    token_error_rate,
)

__all__ = [
    "ANY",
    "BITS",
    "HULLS",
    "LABELS",
    "MASKED",
    "METRICS",
    "POSITIONS",
    "PROBABILITIES",
    "TAGS",
    "TEXT",
    "TOURS",
    "TREES",
    "TRIANGLES",
    "Metric",
    "MetricFunction",
    "Score",
    "accuracy",
    "applicable_metrics",
    "bit_errors",
    "bleu",
    "chrf",
    "deciding_metric",
    "describe_score",
    "edit_distance",
    "exact_match",
    "histograms",
    "left_out_metrics",
    "masked_accuracy",
    "metrics_of",
    "register_metric",
    "rouge",
    "score_all",
    "span_f1",
    "spans",
    "token_error_rate",
]

for _metric in (*LOSS_METRICS, *TEXT_METRICS, *LABEL_METRICS, *TREE_METRICS, *PLANE_METRICS):
    register_metric(_metric)

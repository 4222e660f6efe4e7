"""How good labels are: the share of labels, and of labelled spans, that are right. Labels are split at spaces."""

from __future__ import annotations

from collections.abc import Sequence

from regard.config import EvaluateConfig
from regard.evaluation.metrics import LABELS, POSITIONS, TAGS, Metric, register_metric

Span = tuple[str, int, int]  # kind, first label, one past the last


def accuracy(outputs: Sequence[str], references: Sequence[str], config: EvaluateConfig) -> tuple[float, str]:
    """Return the share of reference labels that the output has at the same place."""
    right = total = 0
    for output, reference in zip(outputs, references, strict=True):
        own, theirs = output.split(), reference.split()
        right += sum(one == other for one, other in zip(own, theirs, strict=False))
        total += len(theirs)
    return 100 * right / max(total, 1), "labels split at spaces, compared place by place"


def span_f1(outputs: Sequence[str], references: Sequence[str], config: EvaluateConfig) -> tuple[float, str]:
    """Return the harmonic mean of precision and recall over spans: the same kind from the same first to last label."""
    found = expected = right = 0
    for output, reference in zip(outputs, references, strict=True):
        own, theirs = set(spans(output.split())), set(spans(reference.split()))
        found, expected, right = found + len(own), expected + len(theirs), right + len(own & theirs)
    value = 200 * right / (found + expected) if found + expected else 100.0
    return value, "exact spans of BIO labels, micro average, as conlleval counts them"


def spans(labels: Sequence[str]) -> list[Span]:
    """Return the spans of BIO labels. As in conlleval, an I that continues no span of its kind begins one."""
    found: list[Span] = []
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


EVERY_LABEL = (TAGS, LABELS, POSITIONS)
register_metric(Metric("accuracy", accuracy, higher_is_better=True, label="accuracy", unit="%", compares=EVERY_LABEL))
register_metric(Metric("span_f1", span_f1, higher_is_better=True, label="span F1", unit="%", compares=(TAGS,)))

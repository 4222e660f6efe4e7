"""Metrics of labels, hidden words and bits: outputs that are compared with their reference place by place."""

from __future__ import annotations

from collections.abc import Sequence

from regard.config import EvaluateConfig
from regard.metrics.base import BITS, LABELS, MASKED, POSITIONS, TAGS, Metric
from regard.text.words import hidden_words, split_words


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


def without_spans(references: Sequence[str], config: EvaluateConfig) -> str:
    """Return why spans of these labels cannot be compared; an empty text if they can. Labels may all be O."""
    labels = {label for reference in references for label in reference.split()}
    if labels <= {"O"} or any(label.startswith(("B-", "I-")) for label in labels):
        return ""
    return "the references have no labels of spans, as in B-NP and I-NP"


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


def bit_errors(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return the number of wrong bits per sequence. A bit that is missing, or one too many, is wrong."""
    wrong = 0
    for output, reference in zip(outputs, references, strict=True):
        own, theirs = output.replace(" ", ""), reference.replace(" ", "")
        wrong += sum(map(str.__ne__, own, theirs)) + abs(len(own) - len(theirs))
    return wrong / len(references), "bits of a sequence compared place by place, mean over sequences"


LABEL_METRICS = (
    Metric("accuracy", accuracy, True, "accuracy", unit="%", compares=(TAGS, LABELS, POSITIONS)),
    Metric("masked_accuracy", masked_accuracy, True, "masked accuracy", unit="%", compares=(MASKED,)),
    Metric("span_f1", span_f1, True, "span F1", unit="%", compares=(TAGS,), obstacle=without_spans),
    Metric("bit_errors", bit_errors, False, "wrong bits per sequence", decimals=2, compares=(BITS,)),
)

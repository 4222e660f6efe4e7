"""A comparison as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from regard.comparing.outputs import ComparedSet
from regard.comparing.result import (
    HEAD,
    Compared,
    describe_lengths,
    describe_metric,
    describe_range,
    describe_set,
    explain_tests,
    frequency_rows,
    score_row,
    verdicts,
)
from regard.comparing.sentences import ChangedSentence


def as_text(comparison: Compared) -> str:
    """Return the tables, and the sentences that differ most."""
    lines = []
    for compared in comparison.sets:
        lines += [f"{compared.name} ({describe_set(compared)})", *_scores(compared)]
        lines += ["", *(verdicts(compared, system) for system in compared.changes)]
        lines += ["", *_by_length(compared)]
        if compared.by_frequency is not None:
            systems = [one.name for one in comparison.systems]
            lines += ["", *aligned(frequency_rows(compared.by_frequency, systems))]
        for system, changes in compared.changes.items():
            same = f"{changes.equal:,} of {compared.num_sentences:,} outputs are the same"
            for title, found in (("better", changes.improved), ("worse", changes.worsened)):
                if found:
                    lines += ["", f"Where {system} is {title} than {comparison.baseline}, by chrF ({same})"]
                    lines += [line for one in found for line in _sentence(one, comparison.baseline, system)]
        lines.append("")
    return "\n".join([*lines, explain_tests(comparison)])


def _scores(compared: ComparedSet) -> list[str]:
    lines = []
    for metric in compared.metrics:
        head = [describe_metric(metric), *HEAD[1:]]
        lines += ["", *aligned([head, *(score_row(metric, one) for one in metric.systems)])]
        lines.append(metric.signature)
    return lines


def _by_length(compared: ComparedSet) -> list[str]:
    metrics = compared.metrics
    rows = [[describe_lengths(compared.by_length), "sentences", "system", *(one.metric for one in metrics)]]
    for group in compared.by_length.groups:
        names = (describe_range(group.shortest, group.longest), f"{group.num_sentences:,}")
        for number, system in enumerate(metrics[0].systems):
            scores = [f"{group.scores[one.metric][number]:.{one.decimals}f}" for one in metrics]
            rows.append([*(("", "") if number else names), system.system, *scores])
    return aligned(rows)


def _sentence(one: ChangedSentence, baseline: str, system: str) -> list[str]:
    width = max(len("reference"), len(baseline), len(system))
    rows = [] if one.source is None else [("source", one.source)]
    rows += [("reference", text) for text in one.references]
    rows += [(baseline, one.before), (system, f"{one.after}  ({one.change:+.1f})")]
    return [f"  line {one.line:,}", *(f"    {name.ljust(width)}  {text}".rstrip() for name, text in rows)]


def aligned(rows: Sequence[Sequence[str]], *, texts: Sequence[bool] = (True,)) -> list[str]:
    """Return the lines of a table: columns of `texts` aligned left, numbers right. Columns it does not list have numbers."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column < len(texts) and texts[column] else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]

"""A comparison as one HTML page without scripts."""

from __future__ import annotations

import html
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from regard.comparing.outputs import ComparedSet, MetricComparison, SystemScore
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
from regard.comparing.word_frequency import ByFrequency
from regard.explain.page_assets import make_page

COLOURS = 8  # of the style
WIDTH, ROW, LEFT, RIGHT = 640, 26, 190, 16  # of a chart
MOST_NAME = 26  # characters of a name in a chart


def as_page(comparison: Compared) -> str:
    """Return the page."""
    title = ", ".join(one.name for one in comparison.systems)
    body = [_introduction(comparison), *(_set(comparison, number) for number in range(len(comparison.sets)))]
    styles = ["look.css", "report.css", "compare.css"]
    return make_page("compare.html", {"body": "\n".join(body)}, title=title, styles=styles)


def _introduction(comparison: Compared) -> str:
    rows = [
        [one.name, "baseline" if number == 0 else "", one.path, "file" if one.search is None else f"run, {one.search}"]
        for number, one in enumerate(comparison.systems)
    ]
    head = ["system", "", "path", "outputs"]
    table = _table("Systems", [TableCell(text) for text in head], [[TableCell(text) for text in row] for row in rows])
    return f'<section><h2>Systems</h2>{table}<p class="note">{html.escape(explain_tests(comparison))}</p></section>'


def _set(comparison: Compared, number: int) -> str:
    compared = comparison.sets[number]
    parts = [f"<h2>{html.escape(compared.name)}</h2>", f'<p class="note">{describe_set(compared)}</p>', "<ul>"]
    parts += [f"<li>{html.escape(verdicts(compared, system))}</li>" for system in compared.changes]
    parts.append("</ul>")
    for metric in compared.metrics:
        label = f"{compared.name}, {metric.metric}"
        parts += [f"<h3>{html.escape(describe_metric(metric))}</h3>", _scores(metric, label), _chart(metric)]
        parts.append(f'<p class="signature">{html.escape(metric.signature)}</p>')
    parts += [f"<h3>Scores by length ({html.escape(describe_lengths(compared.by_length))})</h3>", _by_length(compared)]
    if compared.by_frequency is not None:
        parts += ["<h3>Words by frequency in the training text</h3>", _by_frequency(comparison, compared.by_frequency)]
    for system, changes in compared.changes.items():
        parts.append(f"<h3>{html.escape(system)}: sentences that differ most, by chrF</h3>")
        parts.append(f'<p class="note">{changes.equal:,} of {compared.num_sentences:,} outputs are the same.</p>')
        for title, found in (("Better", changes.improved), ("Worse", changes.worsened)):
            if found:
                items = "".join(_sentence(one, comparison.baseline, system) for one in found)
                summary = f"{title} than {comparison.baseline}"
                parts.append(f"<details open><summary>{html.escape(summary)}</summary>{items}</details>")
    return f"<section>{''.join(parts)}</section>"


def _scores(metric: MetricComparison, label: str) -> str:
    rows = []
    for one in metric.systems:
        name, *numbers = score_row(metric, one)
        verdict = "" if one.paired is None else metric.verdict(one.paired)
        # The change has a colour, and the list above says the same in words.
        coloured = f"number {verdict}" if verdict in ("better", "worse") else "number"
        cells = [TableCell(text, coloured if column == 2 else "number") for column, text in enumerate(numbers)]
        rows.append([TableCell(name), *cells])
    return _table(label, [TableCell(HEAD[0]), *(TableCell(text, "number") for text in HEAD[1:])], rows)


def _by_length(compared: ComparedSet) -> str:
    metrics, rows = compared.metrics, []
    head = [TableCell(compared.by_length.unit), TableCell("sentences", "number"), TableCell("system")]
    for group in compared.by_length.groups:
        names = [
            TableCell(describe_range(group.shortest, group.longest)),
            TableCell(f"{group.num_sentences:,}", "number"),
        ]
        for number, system in enumerate(metrics[0].systems):
            scores = [f"{group.scores[one.metric][number]:.{one.decimals}f}" for one in metrics]
            rows.append([*names, TableCell(system.system), *(TableCell(text, "number") for text in scores)])
    return _table(
        f"{compared.name}, scores by length", [*head, *(TableCell(one.metric, "number") for one in metrics)], rows
    )


def _by_frequency(comparison: Compared, by_frequency: ByFrequency) -> str:
    head, *rows = (
        [TableCell(text, "" if column in (0, 2) else "number") for column, text in enumerate(row)]
        for row in frequency_rows(by_frequency, [one.name for one in comparison.systems])
    )
    return _table("words by frequency", head, rows)


def _chart(metric: MetricComparison) -> str:
    """Return a picture of the scores with their intervals: a dot on a line per system."""
    low = min(min(one.score, one.mean - one.ci) for one in metric.systems)
    high = max(max(one.score, one.mean + one.ci) for one in metric.systems)
    span = (high - low) or 1.0
    height = ROW * len(metric.systems) + 24

    def x(value: float) -> str:
        return f"{LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / span:.1f}"

    drawn = [
        _chart_row(one, number, x(one.mean - one.ci), x(one.mean + one.ci), x(one.score))
        for number, one in enumerate(metric.systems)
    ]
    for value, anchor in ((low, "start"), (high, "end")):
        drawn.append(f'<text x="{x(value)}" y="{height - 6}" text-anchor="{anchor}">{value:.{metric.decimals}f}</text>')
    spoken = "; ".join(
        f"{one.system} {one.score:.{metric.decimals}f}, {one.mean:.{metric.decimals}f} ± {one.ci:.{metric.decimals}f}"
        for one in metric.systems
    )
    label = html.escape(f"{metric.metric} with 95 % intervals: {spoken}")
    picture = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{"".join(drawn)}</svg>'
    return f'<figure class="chart">{picture}</figure>'


def _chart_row(one: SystemScore, number: int, low: str, high: str, score: str) -> str:
    y, colour = ROW * number + ROW // 2, f"var(--head-{number % COLOURS})"
    name = one.system if len(one.system) <= MOST_NAME else f"…{one.system[1 - MOST_NAME :]}"
    return (
        f'<text x="0" y="{y + 4}">{html.escape(name)}</text>'
        f'<line class="whisker" x1="{low}" x2="{high}" y1="{y}" y2="{y}" stroke="{colour}"/>'
        f'<circle cx="{score}" cy="{y}" r="5" fill="{colour}"/>'
    )


def _sentence(one: ChangedSentence, baseline: str, system: str) -> str:
    rows = [] if one.source is None else [("source", html.escape(one.source))]
    rows += [("reference", html.escape(text)) for text in one.references]
    before, after = mark_differences(one.before, one.after)
    rows += [(baseline, before), (system, f'{after} <span class="note">({one.change:+.1f})</span>')]
    items = "".join(f'<dt>{html.escape(name)}</dt><dd dir="auto">{text}</dd>' for name, text in rows)
    return f'<div class="changed"><p class="note">Line {one.line:,}</p><dl>{items}</dl></div>'


def mark_differences(one: str, other: str) -> tuple[str, str]:
    """Return two texts as HTML in which the words that differ are marked."""
    left, right = one.split(), other.split()
    parts: tuple[list[str], list[str]] = ([], [])
    for kind, *places in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for words, (begin, end), found in zip((left, right), (places[:2], places[2:]), parts, strict=True):
            text = html.escape(" ".join(words[begin:end]))
            if text:
                found.append(text if kind == "equal" else f"<mark>{text}</mark>")
    return " ".join(parts[0]) or "(empty)", " ".join(parts[1]) or "(empty)"


class TableCell(NamedTuple):
    """A cell of a table."""

    text: str
    kind: str = ""  # of the style


def _table(label: str, head: Sequence[TableCell], rows: Sequence[Sequence[TableCell]]) -> str:
    """Return a table. The first cell of a row names it."""
    lines = ["".join(_cell("th", one, 'scope="col"') if one.text else "<td></td>" for one in head)]
    for first, *others in rows:
        lines.append(_cell("th", first, 'scope="row"') + "".join(_cell("td", one) for one in others))
    top, *body = (f"<tr>{line}</tr>" for line in lines)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(label)}">'
        f"<table><thead>{top}</thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _cell(tag: str, cell: TableCell, attributes: str = "") -> str:
    kind = f'class="{cell.kind}"' if cell.kind else ""
    return f"<{' '.join(filter(None, [tag, attributes, kind]))}>{html.escape(cell.text)}</{tag}>"

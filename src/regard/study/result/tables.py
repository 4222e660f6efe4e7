"""The result of a study as tables of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.comparing.result import describe_range
from regard.metrics import METRICS
from regard.study.result.study_result import RowComparison, RowResult, SetResult, Spread, StudyResult
from regard.study.study_file import describe_settings

VERDICTS = {
    "better": "better",
    "worse": "worse",
    "unclear": "unclear",
    "same": "no difference found",
    "untested": "not tested",
}

TEXT_COLUMNS = ("group", "verdict", "chosen", "changes", "candidate", "choice")


@dataclass(frozen=True)
class Table:
    """A table of text. The first cell of a row names it; a rule stands above rows that begin a group."""

    title: str
    head: list[str]
    rows: list[list[str]]
    groups: list[int]  # numbers of rows that begin a group

    @property
    def columns(self) -> list[tuple[str, bool]]:
        """The name of each column, and whether it has texts, which begin at its left edge, and not numbers."""
        return [(name, number == 0 or name in TEXT_COLUMNS) for number, name in enumerate(self.head)]


def score_tables(result: StudyResult) -> list[Table]:
    """Return the tables of a study: per test set the tested metric, also by length, and others; cost, settings, choices."""
    by_set = [
        table
        for number in range(len(result.tests))
        for table in (_tested(result, number), _by_length(result, number), _others(result, number))
    ]
    found = [*by_set, _details(result), *_settings(result), *_choices(result)]
    return [_filled(table) for table in found if len(table.head) > 1]


def _filled(table: Table) -> Table:
    """Return the table without columns that are empty in all rows."""
    kept = [number for number in range(len(table.head)) if number == 0 or any(row[number] for row in table.rows)]
    return Table(
        table.title, [table.head[n] for n in kept], [[row[n] for n in kept] for row in table.rows], table.groups
    )


# Cells


def label_of(metric: str) -> str:
    """Return what a reader calls a metric, with its unit."""
    if metric not in METRICS.names():
        return metric
    found = METRICS.get(metric, where="metric")
    return f"{found.label} ({found.unit})" if found.unit else found.label


def decimals_of(metric: str) -> int:
    """Return how many decimals of a mean are shown: one more than of a single score."""
    return METRICS.get(metric, where="metric").decimals + 1 if metric in METRICS.names() else 2


def show_spread(spread: Spread | None, metric: str) -> str:
    """Return a mean and its deviation, as in "51.23 ± 0.31"."""
    if spread is None:
        return ""
    digits = decimals_of(metric)
    return f"{spread.mean:.{digits}f}" + ("" if spread.deviation is None else f" ± {spread.deviation:.{digits}f}")


def show_p(p: float | None) -> str:
    """Return a p-value; the smallest ones as a bound."""
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _tested(result: StudyResult, number: int) -> Table:
    metric, test = result.metric, result.tests[number]
    published = list(dict.fromkeys(name for row in result.rows for name in row.sets[number].published))
    head = ["row", label_of(metric), "change", "95 % interval, uncorrected", "p, seeds", "p, sentences", "verdict"]
    head += [f"{label_of(name)}, published" for name in published]
    rows = []
    for row in result.rows:
        cells = [row.name, show_spread(row.sets[number].scores.get(metric), metric) or "-"]
        is_baseline = row.name == result.baseline and len(result.rows) > 1
        cells += _compared(row.sets[number].compared, metric, baseline=is_baseline)
        rows.append([*cells, *(_published(row.sets[number], name) for name in published)])
    return Table(f"{label_of(metric)} on {test}", head, rows, _groups(result.rows))


def _others(result: StudyResult, number: int) -> Table:
    names = [name for name in _metrics(result, number) if name != result.metric]
    rows = [
        [row.name, *(show_spread(row.sets[number].scores.get(name), name) for name in names)] for row in result.rows
    ]
    return Table(f"Other scores on {result.tests[number]}", ["row", *map(label_of, names)], rows, _groups(result.rows))


def _by_length(result: StudyResult, number: int) -> Table:
    test, digits = result.tests[number], decimals_of(result.metric) - 1
    groups = result.by_length[test] if len(result.by_length[test]) > 1 else []
    head = ["row", *(f"{describe_range(one.shortest, one.longest)} ({one.sentences:,})" for one in groups)]
    rows = [
        [row.name, *(f"{one.scores[row.name]:.{digits}f}" if row.name in one.scores else "" for one in groups)]
        for row in result.rows
    ]
    title = f"{label_of(result.metric)} on {test} by tokens of the reference (sentences)"
    return Table(title, head, rows, _groups(result.rows))


def _metrics(result: StudyResult, number: int) -> list[str]:
    return list(dict.fromkeys(name for row in result.rows for name in row.sets[number].scores))


def _compared(compared: RowComparison | None, metric: str, *, baseline: bool) -> list[str]:
    if compared is None:
        return ["", "", "", "", "baseline" if baseline else ""]
    digits = decimals_of(metric)
    has_interval = compared.low is not None and compared.high is not None
    return [
        f"{compared.change:+.{digits}f}",
        f"{compared.low:+.{digits}f} to {compared.high:+.{digits}f}" if has_interval else "",
        show_p(compared.p_seeds_corrected),
        show_p(compared.p_sentences_corrected),
        VERDICTS[compared.verdict],
    ]


def _published(scored: SetResult, metric: str) -> str:
    """Return a published score with its change, and whether ours has another direction."""
    found = scored.published.get(metric)
    if found is None:
        return ""
    digits = decimals_of(metric) - 1
    change = "" if found.change is None else f" ({found.change:+.{digits}f})"
    opposite = " opposite" if found.same_direction is False else ""
    return f"{found.score:.{digits}f}{change}{opposite}"


def _groups(rows: Sequence[RowResult]) -> list[int]:
    return [number for number in range(1, len(rows)) if rows[number].group != rows[number - 1].group]


def _details(result: StudyResult) -> Table:
    head = ["row", "seeds", "parameters", "chosen", "minutes per seed", "labels per second"]
    rows = []
    for row in result.rows:
        rows.append(
            [
                row.name,
                f"{max((spread.seeds for one in row.sets for spread in one.scores.values()), default=0)}",
                "" if row.parameters is None else f"{row.parameters:,}",
                describe_settings(row.chosen),
                "" if row.seconds is None else f"{row.seconds / 60:.3g}",
                "" if row.tokens_per_second is None else f"{row.tokens_per_second:,.0f}",
            ]
        )
    return Table("Size and cost", head, rows, _groups(result.rows))


def _settings(result: StudyResult) -> list[Table]:
    """Return the table of what each row changes, unless the names of the rows say the same."""
    rows = [[row.name, row.group, describe_settings(row.settings)] for row in result.rows if row.settings]
    named = all(name == text for name, _, text in rows)
    return [] if named else [Table("Settings", ["row", "group", "changes"], rows, [])]


def _choices(result: StudyResult) -> list[Table]:
    """Return the table of all candidates, if there was something to choose."""
    rows: list[list[str]] = []
    groups: list[int] = []
    for row in result.rows:
        if row.candidates and rows:
            groups.append(len(rows))
        for one in row.candidates:
            score = one.state if one.score is None else f"{one.score:.{decimals_of(result.metric)}f}"
            rows.append([row.name, describe_settings(one.settings), score, "chosen" if one.chosen else ""])
    head = ["row", "candidate", f"{label_of(result.metric)} on the dev set", "choice"]
    return [Table(f"Candidates, seed {result.choosing_seed}", head, rows, groups)] if rows else []

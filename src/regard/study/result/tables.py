"""The result of a study as tables of text, and the notes below them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.comparing.result import describe_range
from regard.messages import counted
from regard.metrics import METRICS
from regard.metrics.significance import ALPHA
from regard.study.result.study_result import RowComparison, RowResult, SetResult, Spread, StudyResult
from regard.study.study_file import VALID, Settings, canonical, describe_settings
from regard.toml import inline_toml

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


def _at_an_edge(row: RowResult) -> str:
    """Return which chosen numbers are the smallest or largest that were tried, as in "lr 0.004 (largest)"."""
    found = []
    for key, chosen in row.chosen.items():
        tried = sorted({one.settings[key] for one in row.candidates if _is_number(one.settings.get(key))})
        if len(tried) > 1 and chosen in (tried[0], tried[-1]):
            which = "smallest" if chosen == tried[0] else "largest"
            found.append(f"{describe_settings({key: chosen})} ({which})")
    return ", ".join(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def notes(result: StudyResult) -> list[str]:
    """Return what a reader needs to know to read the tables: tests, settings, cost, and cells that did not finish."""
    direction = "higher" if result.higher_is_better else "lower"
    spread = "Scores of" if len(result.seeds) == 1 else "Means ± standard deviations over"
    found = [
        f"{spread} {counted(len(result.seeds), 'seed')} ({', '.join(map(str, result.seeds))}); {label_of(result.metric)}: "
        f"{direction} is better.",
        *_notes_of_tests(result),
    ]
    if VALID in result.tests and any(row.candidates for row in result.rows):
        found.append(f"Candidates were chosen by their scores on {VALID}, which are therefore optimistic.")
    if any(one.published for row in result.rows for one in row.sets):
        found.append(
            "Published scores are of other data: only their direction is compared, where a row is better or worse."
        )
    if result.settings:
        changes = ", ".join(f"{key} = {inline_toml(value)}" for key, value in result.settings.items())
        found.append(f"Recipe {result.recipe}, with {changes}.")
    if _has_other_perplexities(result):
        found.append(
            "Perplexities are comparable only between rows with the same tokenizer and the same kind of model."
        )
    if result.metric in result.signatures:
        found.append(f"{label_of(result.metric)}: {result.signatures[result.metric]}.")
    cost, devices = result.cost, f" ({', '.join(result.cost.devices)})" if result.cost.devices else ""
    found.append(
        f"Cost: {counted(cost.cells, 'cell')} of {cost.hours:.3g} hours together, {cost.device_hours:.3g} device hours"
        f"{devices}."
    )
    if cost.device_hours < cost.hours:
        found.append(
            "Device hours are an estimate: the hours of each cell, divided by the number of cells that were allowed to "
            "share its device. Times and speeds are of cells that shared a device, with more or fewer others: they do not "
            "compare rows."
        )
    edges = [f"{row.name} {edge}" for row in result.rows if (edge := _at_an_edge(row))]
    if edges:
        found.append(
            f"Chosen values at the edge of those tried, so that a wider range may score higher: {'; '.join(edges)}."
        )
    found += [f"{row.name}: {problem}." for row in result.rows for problem in row.problems]
    return found


def _notes_of_tests(result: StudyResult) -> list[str]:
    """Return what the columns of comparisons mean; nothing if no row is compared."""
    compared = [
        (row.name, one.test, one.compared) for row in result.rows for one in row.sets if one.compared is not None
    ]
    if not compared:
        return []
    over_seeds = [(row, test, one.pooled) for row, test, one in compared if one.p_seeds is not None]
    over_sentences = any(one.p_sentences is not None for _, _, one in compared)
    parts = [f"Changes are against {result.baseline}."]
    pooled_tests = {test for _, test, pooled in over_seeds if pooled}
    if pooled_tests:
        parts.append("p, seeds: row + seed, with the noise of all rows together.")
        alone = [f"{row} on {test}" for row, test, pooled in over_seeds if not pooled and test in pooled_tests]
        if alone:
            parts.append(f"A paired t-test of its own, because it varies significantly more, has {'; '.join(alone)}.")
        none_pooled = dict.fromkeys(test for _, test, _ in over_seeds if test not in pooled_tests)
        parts += [f"On {test} every row has a paired t-test of its own." for test in none_pooled]
    elif over_seeds:
        parts.append("p, seeds: paired t-test.")
    if over_sentences:
        parts.append(
            f"p, sentences: approximate randomization of the mean over seeds, {result.trials:,} trials, "
            f"seed {result.trials_seed}."
        )
    corrected = f"corrected for the number of rows of a table (Holm){', unlike the intervals' if over_seeds else ''}"
    if over_seeds and over_sentences:
        parts.append(f"Both are {corrected}; a verdict needs both below {ALPHA:g}, and is unclear with one.")
    elif over_seeds:
        parts.append(f"It is {corrected}; a verdict needs it below {ALPHA:g}.")
    elif over_sentences:
        parts.append(f"It is {corrected}; a verdict needs a test over seeds too, and is unclear without.")
    return [" ".join(parts)]


def _has_other_perplexities(result: StudyResult) -> bool:
    """Return whether perplexities are shown of rows that may split text or factor its probability differently."""
    shown = any("perplexity" in one.scores for row in result.rows for one in row.sets)
    return shown and len({canonical(_what_perplexities_depend_on(row)) for row in result.rows}) > 1


def _what_perplexities_depend_on(row: RowResult) -> Settings:
    settings = {**row.settings, **row.chosen}
    return {
        key: value
        for key, value in settings.items()
        if key in ("recipe", "model.kind") or key.partition(".")[0] == "tokenizer"
    }

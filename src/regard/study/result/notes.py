"""The notes below the tables of a study: what a reader needs to know of tests, settings, choices and cost."""

from __future__ import annotations

from typing import Any

from regard.messages import counted
from regard.metrics.significance import ALPHA
from regard.study.result.study_result import RowResult, StudyResult
from regard.study.result.tables import label_of
from regard.study.study_file import VALID, Settings, canonical, describe_settings
from regard.toml import inline_toml


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

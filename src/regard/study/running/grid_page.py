"""The grid of a study as one HTML page without scripts. It reloads itself while cells remain."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from regard.explain.page_assets import make_page
from regard.messages import format_duration
from regard.metrics import describe_score
from regard.run.folder import REPORT
from regard.study.cells import CELLS, RUN, Cell
from regard.study.choices import has_choice
from regard.study.state import CellProgress, StudyState
from regard.study.study_file import Settings, candidates_of, describe_settings

PAGE = "study.html"
REFRESH_SECONDS = 10
STAGES = {
    "waiting": "waiting",
    "training": "training",
    "elsewhere": "another process",
    "scoring": "scoring",
    "finished": "finished",
    "diverged": "diverged",
    "failed": "failed",
}


def as_page(state: StudyState, progress: Sequence[CellProgress], *, left: float | None) -> str:
    """Return the page: the question, how far the study is, and the dev score and progress of every cell."""
    study, remaining = state.study, state.open_cells()
    body = [
        f'<p class="question">{html.escape(study.question)}</p>',
        _facts(state, left if remaining else None),
        _bar(len(state.records), state.total, f"{len(state.records)} of {state.total} cells", kind="overall"),
        _grid(state, progress),
        f'<p class="note">{html.escape(_explanation(state))}</p>',
        _problems(progress),
    ]
    return make_page(
        "study.html",
        {"body": "\n".join(body)},
        title=f"{len(state.records)}/{state.total} · {study.question[:80]}",
        styles=["look.css", "report.css", "study.css"],
        refresh_seconds=REFRESH_SECONDS if remaining else None,
    )


def _facts(state: StudyState, left: float | None) -> str:
    study = state.study
    facts = {
        "recipe": Path(study.recipe).name.removesuffix(".toml"),
        "metric": study.metric,
        "baseline": study.baseline,
        "cells": f"{len(state.records)} of {state.total}",
        "diverged": str(state.count("diverged") or ""),
        "failed": str(state.count("failed") or ""),
        "time of training": format_duration(sum(record.seconds for record in state.records)),
        "time left": "" if left is None else f"about {format_duration(left)}",
    }
    items = "".join(f"<div><dt>{name}</dt><dd>{html.escape(text)}</dd></div>" for name, text in facts.items() if text)
    return f'<dl class="facts">{items}</dl>'


def _grid(state: StudyState, progress: Sequence[CellProgress]) -> str:
    """Return the table: one line per row and candidate, one column per seed."""
    study = state.study
    by_key = {one.cell.key: one for one in progress}
    chooses = any(has_choice(study, row) for row in study.rows)
    seeds = (*([study.choosing_seed] if chooses else ()), *study.seeds)
    head = ["row", *(["candidate"] if chooses else []), *(f"seed {seed}" for seed in seeds)]
    lines = ["".join(f'<th scope="col">{html.escape(text)}</th>' for text in head)]
    for row in study.rows:
        candidates = candidates_of(study, row)
        like = study.rows[row].like
        chosen = state.chosen(row) if like or len(candidates) > 1 else None
        candidates = [chosen] if like and chosen is not None else candidates
        for number, candidate in enumerate(candidates):
            cells = [_row_head(state, row, count=len(candidates))] if number == 0 else []
            note = f"as {like}" if like else "chosen" if candidate == chosen else ""
            cells += [_candidate(candidate, note)] if chooses else []
            cells += [_cell(study.metric, by_key.get(Cell(row, candidate, seed).key)) for seed in seeds]
            lines.append("".join(cells))
    top, *body = (f"<tr>{line}</tr>" for line in lines)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Cells by row and seed">'
        f'<table class="grid-of-cells"><thead>{top}</thead><tbody>{"".join(body)}</tbody></table></div>'
    )


def _row_head(state: StudyState, row: str, *, count: int) -> str:
    study = state.study
    group = study.rows[row].group
    kind = ' class="baseline"' if row == study.baseline else ""
    name = html.escape(f"{group} · {row}" if group and group != row else row)
    baseline = '<span class="stage">baseline</span>' if row == study.baseline else ""
    return f'<th scope="row" rowspan="{count}"{kind}>{name}{baseline}</th>'


def _candidate(candidate: Settings, note: str) -> str:
    text = html.escape(describe_settings(candidate))
    return (
        f'<td class="chosen">{text}<span class="stage">{html.escape(note)}</span></td>' if note else f"<td>{text}</td>"
    )


def _cell(metric: str, one: CellProgress | None) -> str:
    if one is None:  # a candidate that was not chosen has no other seeds, a row without a choice no candidates
        return "<td></td>"
    score = "" if one.score is None else f'<span class="score">{html.escape(describe_score(metric, one.score))}</span>'
    stage = f'<span class="stage {one.stage}">{STAGES[one.stage]}</span>'
    if one.step:
        place = "/".join([CELLS, *map(quote, one.cell.parts), RUN, REPORT])
        score = f'<a href="{place}" title="The report of this run">{score or "report"}</a>'
    begun = not one.ended and one.step
    bar = _bar(one.step, one.steps, f"step {one.step:,} of {one.steps:,}") if begun else ""
    return f"<td>{score}{stage}{bar}</td>"


def _bar(done: int, total: int, label: str, *, kind: str = "") -> str:
    attributes = f' class="{kind}"' if kind else ""
    return (
        f'<progress{attributes} max="{max(total, 1)}" value="{done}" aria-label="{label}" title="{label}"></progress>'
    )


def _explanation(state: StudyState) -> str:
    study = state.study
    text = "Scores are on the dev set: of the final weights where a cell has finished, else of its last validation."
    if any(has_choice(study, row) for row in study.rows):
        text += f" Candidates are trained with seed {study.choosing_seed}; the best is trained with the other seeds."
    return text


def _problems(progress: Sequence[CellProgress]) -> str:
    found = [one for one in progress if one.problem]
    items = "".join(f"<dt>{html.escape(one.cell.key)}</dt><dd>{html.escape(one.problem)}</dd>" for one in found)
    return f'<section><h2>Problems</h2><dl class="problems">{items}</dl></section>' if found else ""

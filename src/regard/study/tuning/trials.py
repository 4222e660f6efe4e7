"""The trials of a search as rows of a study: their scores, the best of them, and the files that a search resumes from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from regard.errors import ConfigError
from regard.storage.folder import Folder
from regard.study.choices import is_higher_better
from regard.study.records import CellRecord
from regard.study.study_file import VALID, Settings, Study, StudyRow, recipe_of, seed_for_choosing, study_toml
from regard.study.tuning.tuning_file import Tuning
from regard.toml import dump_toml, from_table, read_toml

RECIPE_ROW = "recipe"  # the baseline: the recipe with the settings of the search, and nothing tried
NAME = r"trial [1-9]\d{0,8}"
Trials = dict[str, Settings]  # by the name of their row


def trial_name(number: int) -> str:
    """Return the name of the row of a trial."""
    return f"trial {number}"


def trial_number(name: str) -> int:
    """Return the number of a trial, by its name."""
    return int(name.removeprefix("trial "))


def study_of(tuning: Tuning, trials: Mapping[str, Settings]) -> Study:
    """Return the study of the recipe and these trials, with a seed of their own, on the dev set."""
    rows = {RECIPE_ROW: StudyRow()}
    rows |= {name: StudyRow(settings=settings) for name, settings in trials.items()}
    return Study(
        question=f"Which settings of {Path(tuning.recipe).name} have the best {tuning.metric} on the dev set?",
        recipe=tuning.recipe,
        metric=tuning.metric,
        seeds=(seed_for_choosing(tuning.seeds),),
        baseline=RECIPE_ROW,
        tests=(VALID,),
        settings=tuning.settings,
        rows=rows,
    )


def best_study(tuning: Tuning, trials: Mapping[str, Settings], records: Sequence[CellRecord]) -> Study | None:
    """Return the study that compares the best of these trials with the recipe over all seeds; None if none is better.

    It compares on all test sets, or on the dev set if the recipe has no test set.
    """
    known = {RECIPE_ROW, *trials}
    scores = {one.row: score for one in records if one.row in known and (score := score_of(tuning, one)) is not None}
    best = max(scores, key=lambda row: scores[row], default=RECIPE_ROW)
    if best == RECIPE_ROW:
        return None
    both = study_of(tuning, {best: trials[best]})
    question = f"Are the settings of {best} better than those of {Path(tuning.recipe).name}, also with other seeds?"
    has_tests = bool(recipe_of(both, RECIPE_ROW, {}, tuning.seeds[0]).data.test)
    return msgspec.structs.replace(both, question=question, seeds=tuning.seeds, tests=None if has_tests else (VALID,))


def scored_trials(
    tuning: Tuning, trials: Mapping[str, Settings], records: Sequence[CellRecord]
) -> list[tuple[Settings, float]]:
    """Return the settings and scores of trials, the higher the better. Those without a score have the worst of all."""
    scores = {record.row: score for record in records if (score := score_of(tuning, record)) is not None}
    worst = min((scores[name] for name in trials if name in scores), default=0.0)
    return [(settings, scores.get(name, worst)) for name, settings in trials.items()]


def score_of(tuning: Tuning, record: CellRecord) -> float | None:
    """Return the score of a finished cell on the dev set, the higher the better."""
    score = record.score(VALID, tuning.metric) if record.state == "finished" else None
    return None if score is None else score if is_higher_better(tuning.metric) else -score


# Files


def save_study(study: Study, path: Path) -> None:
    """Write a study as a file next to its cells, for `regard study`."""
    Folder(path.parent).make().save_text(path.name, study_toml(study))


def read_trials(path: Path) -> Trials:
    """Return the trials of a search in the study that it has written; none if there is no such file."""
    if not path.exists():
        return {}
    study = from_table(Study, read_toml(path), where="study")
    if any(name != RECIPE_ROW and not re.fullmatch(NAME, name) for name in study.rows):
        raise ConfigError(f"{path} is not the study of a search; name another folder with --out")
    return {name: row.settings for name, row in study.rows.items() if name != RECIPE_ROW}


def save_refused(refused: Mapping[str, tuple[Settings, str]], path: Path) -> None:
    """Write the trials that cannot be trained, and why."""
    table = {name: {"reason": reason, "settings": settings} for name, (settings, reason) in refused.items()}
    if table or path.exists():
        Folder(path.parent).make().save_text(path.name, dump_toml(table, ordered=("settings",)) + "\n")


def read_refused(path: Path) -> Trials:
    """Return the trials that could not be trained; none if there is no such file."""
    table = read_toml(path) if path.exists() else {}
    settings = {name: one.get("settings") for name, one in table.items() if isinstance(one, dict)}
    return {name: one for name, one in settings.items() if isinstance(one, dict) and re.fullmatch(NAME, name)}

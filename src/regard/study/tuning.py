"""Search for better settings of a recipe (`regard tune`): trials that Optuna proposes, each of them a row of a study.

A proposal follows from the trials that have ended and from nothing else, so a search that was killed proposes the same
again, and the cell on disk resumes. OUT/study.toml is the study of all trials, for `regard study run` and `show`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from regard.config import Struct
from regard.errors import require
from regard.storage.folder import Folder
from regard.study.cells import CellRecord, is_higher_better, read_records
from regard.study.checks import check_recipes
from regard.study.running import run_study
from regard.study.study_file import VALID, Settings, Study, StudyRow, recipe_beside
from regard.toml import dump_toml, flat_table, from_table, read_toml, to_table

RECIPE_ROW = "recipe"  # the baseline: the recipe with the settings of the search, and nothing tried
BEST_STUDY, TRIALS_STUDY = "best.toml", "study.toml"
MAX_TRIALS, MAX_VALUES = 400, 100
DIGITS = 4  # that are kept of a proposed number, so that a file of settings can be read
SEARCH_SEED = 1


class Range(Struct, frozen=True):
    """Numbers from `low` to `high`, both included. Whole numbers if both are; with `log`, factors are equally likely."""

    low: int | float
    high: int | float
    log: bool = False

    def check(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError("low must be below high, and above 0 with log = true")


class Tuning(Struct, frozen=True):
    """A search: what may change, how it is judged, and how many trials there are."""

    recipe: str  # the name of a shipped recipe, or a .toml file next to this one
    metric: str  # on the dev set, which the trials are judged by
    search: dict[str, Range | list[Any]]  # by dotted key: a range, or a list of values
    trials: int = 20  # that are trained, with the first seed
    seeds: tuple[int, ...] = (1, 2, 3)  # of the final comparison of the best trial with the recipe
    settings: Settings = msgspec.field(default_factory=dict)  # of every trial

    def check(self) -> None:
        if not 1 <= self.trials <= MAX_TRIALS:
            raise ValueError(f"trials must be from 1 to {MAX_TRIALS}")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds must name at least one seed, each once")
        if not self.search:
            raise ValueError("search must name at least one key of the recipe, with a range or a list of values")
        for key, values in self.search.items():
            if key in self.settings or key == "train.seed":
                raise ValueError(f"{key} cannot be searched, because it is set")
            if isinstance(values, list) and not 2 <= len(values) <= MAX_VALUES:
                raise ValueError(f"the list of {key} must have 2 to {MAX_VALUES} values")


def read_tuning(path: Path | str) -> Tuning:
    """Return the search in a file. Raise ConfigError for the first thing in it that does not fit."""
    path = Path(path)
    table = read_toml(path)
    if isinstance(table.get("settings"), Mapping):
        table["settings"] = flat_table(table["settings"])
    tuning = from_table(Tuning, table, where="tune")
    return msgspec.structs.replace(tuning, recipe=recipe_beside(path, tuning.recipe))


# Studies


def trial_name(number: int) -> str:
    """Return the name of the row of a trial."""
    return f"trial {number}"


def study_of(tuning: Tuning, proposed: Sequence[Settings]) -> Study:
    """Return the study of the recipe and these trials, with the first seed, on the dev set."""
    rows = {RECIPE_ROW: StudyRow()}
    rows |= {trial_name(number): StudyRow(settings=settings) for number, settings in enumerate(proposed, start=1)}
    return Study(
        question=f"Which settings of {Path(tuning.recipe).name} have the best {tuning.metric} on the dev set?",
        recipe=tuning.recipe,
        metric=tuning.metric,
        seeds=tuning.seeds[:1],
        baseline=RECIPE_ROW,
        tests=(VALID,),
        settings=tuning.settings,
        rows=rows,
    )


def best_study(tuning: Tuning, proposed: Sequence[Settings], records: Sequence[CellRecord]) -> Study | None:
    """Return the study that compares the best trial with the recipe over all seeds, on all sets; None if none is better."""
    sign = 1 if is_higher_better(tuning.metric) else -1
    scores = {record.row: record.score(VALID, tuning.metric) for record in records if record.state == "finished"}
    usable = {row: sign * score for row, score in scores.items() if score is not None}
    best = max(usable, key=lambda row: usable[row], default=RECIPE_ROW)
    if best == RECIPE_ROW:
        return None
    both = study_of(tuning, proposed)
    rows = {name: row for name, row in both.rows.items() if name in (RECIPE_ROW, best)}
    question = f"Are the settings of {best} better than those of {Path(tuning.recipe).name}, also with other seeds?"
    return msgspec.structs.replace(both, question=question, seeds=tuning.seeds, tests=None, rows=rows)


# Proposals


def propose(tuning: Tuning, ended: Sequence[tuple[Settings, float]], count: int) -> list[Settings]:
    """Return the next trials, given the settings and the scores of those that have ended; the higher the better."""
    optuna = require("optuna", extra="tune")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = {key: _distribution(optuna, values) for key, values in tuning.search.items()}
    # A sampler of its own per number of trials, so that the state of a generator is not needed to resume.
    sampler = optuna.samplers.TPESampler(seed=SEARCH_SEED + len(ended), multivariate=False)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for settings, score in ended:
        params = {key: _index(tuning.search[key], value) for key, value in settings.items()}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=space, value=score))
    found = [study.ask(space).params for _ in range(count)]
    return [{key: _value(tuning.search[key], value) for key, value in params.items()} for params in found]


def _distribution(optuna: Any, values: Range | list[Any]) -> Any:
    if isinstance(values, list):
        # By number: Optuna's own values may only be scalars, those of a recipe lists too.
        return optuna.distributions.CategoricalDistribution(range(len(values)))
    if isinstance(values.low, int) and isinstance(values.high, int):
        return optuna.distributions.IntDistribution(values.low, values.high, log=values.log)
    return optuna.distributions.FloatDistribution(float(values.low), float(values.high), log=values.log)


def _index(values: Range | list[Any], value: Any) -> Any:
    return values.index(value) if isinstance(values, list) else value


def _value(values: Range | list[Any], proposed: Any) -> Any:
    if isinstance(values, list):
        return values[proposed]
    if isinstance(proposed, int):
        return proposed
    # Rounding must not lead out of the range.
    return min(max(float(f"{proposed:.{DIGITS}g}"), float(values.low)), float(values.high))


# The search


@dataclass(frozen=True)
class Tuned:
    """How far a search is: whether it has ended, and the study of the best trial; None if none is better than the recipe."""

    ended: bool
    best: Study | None


def tune(
    tuning: Tuning,
    *,
    out: Path | str,
    data: Path | str | None = None,
    at_once: int | None = None,
    seconds: float | None = None,
    show: Callable[[str], None] = lambda text: None,
    tell: Callable[[str], None] = lambda text: None,
    stop: Callable[[], bool] = lambda: False,
    train: Callable[..., Any] = run_study,
) -> Tuned:
    """Train the trials of a search that are missing, then the best of them and the recipe with all seeds.

    All cells are in `out`, so a later call resumes. `train` trains the cells of a study, as `run_study` does.
    """
    require("optuna", extra="tune")
    check_recipes(study_of(tuning, propose(tuning, [], 1)))
    deadline = None if seconds is None else time.monotonic() + seconds
    proposed: list[Settings] = []
    study = study_of(tuning, proposed)

    def train_all(study: Study, name: str) -> bool:
        """Train what is missing of a study, and return whether all of it has ended."""
        save_study(study, Path(out) / name)
        left = None if deadline is None else max(1.0, deadline - time.monotonic())
        state = train(study, out=out, data=data, at_once=at_once, seconds=left, show=show, stop=stop)
        return not state.open_cells() and not stop()

    # Trials of one batch are proposed together, so their number at a time has a part in what is proposed.
    batch = at_once or 1
    while len(proposed) < tuning.trials:
        ended = scored_trials(tuning, proposed, read_records(study, out))
        proposed += propose(tuning, ended, min(batch, tuning.trials - len(proposed)))
        study = study_of(tuning, proposed)
        if len(read_records(study, out)) < len(study.rows) and not train_all(study, TRIALS_STUDY):
            return Tuned(False, None)
    save_study(study, Path(out) / TRIALS_STUDY)
    final = best_study(tuning, proposed, read_records(study, out))
    if final is None:
        tell("no trial is better than the recipe on the dev set")
        return Tuned(True, None)
    settings = ", ".join(f"{key}={value}" for row in final.rows.values() for key, value in row.settings.items())
    tell(f"the best trial on the dev set has {settings}; training it and the recipe with all seeds ...")
    return Tuned(train_all(final, BEST_STUDY), final)


def scored_trials(
    tuning: Tuning, proposed: Sequence[Settings], records: Sequence[CellRecord]
) -> list[tuple[Settings, float]]:
    """Return the settings and scores of trials, the higher the better. Those without a score have the worst of all."""
    sign = 1 if is_higher_better(tuning.metric) else -1
    by_row = {record.row: record.score(VALID, tuning.metric) for record in records}
    scores = [by_row.get(trial_name(number)) for number in range(1, len(proposed) + 1)]
    known = [sign * score for score in scores if score is not None]
    return [
        (settings, min(known, default=0.0) if score is None else sign * score)
        for settings, score in zip(proposed, scores, strict=True)
    ]


def save_study(study: Study, path: Path) -> None:
    """Write a study as a file next to its cells, for `regard study`."""
    if study.recipe.endswith(".toml"):
        # Relative to the file, or to nothing: an absolute path.
        study = msgspec.structs.replace(study, recipe=str(Path(study.recipe).resolve()))
    Folder(path.parent).make().save_text(path.name, f"{dump_toml(to_table(study))}\n")

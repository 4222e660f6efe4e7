"""Search for better settings of a recipe (`regard tune`): trials that Optuna proposes, each of them a row of a study.

OUT/study.toml is the study of all trials, for `regard study run` and `show`, and says what was proposed: a search that was
stopped resumes from it. OUT/refused.toml has the trials that the recipe refuses, with the reason. OUT/best.toml compares the
best trial with the recipe over all seeds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, RegardError, TrainingError, require
from regard.messages import counted
from regard.storage.folder import Folder
from regard.study.cells import CELLS
from regard.study.checks import check_study
from regard.study.choices import read_records
from regard.study.records import CellRecord
from regard.study.running.runner import run_study
from regard.study.running.workers import cells_at_once
from regard.study.study_file import VALID, Settings, Study
from regard.study.tuning.proposals import has_settings, propose
from regard.study.tuning.trials import (
    RECIPE_ROW,
    Trials,
    best_study,
    read_refused,
    read_trials,
    save_refused,
    save_study,
    score_of,
    scored_trials,
    study_of,
    trial_name,
    trial_number,
)
from regard.study.tuning.tuning_file import Tuning

BEST_STUDY, TRIALS_STUDY, REFUSED_TRIALS = "best.toml", "study.toml", "refused.toml"
MAX_REFUSED = 20  # refused trials in a row, after which the search gives up


@dataclass(frozen=True)
class Tuned:
    """How far a search is: whether it has ended, and the study of the best trial; None if none is better than the recipe."""

    ended: bool
    best: Study | None
    failed: tuple[CellRecord, ...] = ()  # cells of this study that failed


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

    All cells are in `out`, so a later call resumes. `train` trains the cells of a study, as `run_study` does. Raise
    TrainingError if no trial has a score.
    """
    require("optuna", extra="tune")
    if Folder(out).has_folder(CELLS) and not (Path(out) / TRIALS_STUDY).exists():
        raise ConfigError(f"{out} is the folder of a study; name another one with --out")
    check_study(study_of(tuning, {}), data=data)
    with Folder(out).locked(busy=f"another process searches in {out}; wait for it, or name another folder with --out"):
        search = _Search(tuning, Path(out), data, tell)
        deadline = None if seconds is None else time.monotonic() + seconds

        def train_all(study: Study, name: str, *, retry_failed: bool) -> bool:
            """Train what is missing of a study, and return whether all of it has ended."""
            save_study(study, search.out / name)
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            state = train(
                study,
                out=out,
                data=data,
                at_once=at_once,
                seconds=left,
                show=show,
                stop=stop,
                retry_failed=retry_failed,
            )
            return not state.open_cells() and not stop()

        retry = True  # trials that failed in an earlier call, once
        while True:
            if search.missing(failed=retry) and not train_all(search.study, TRIALS_STUDY, retry_failed=retry):
                return Tuned(False, None)
            retry = False
            if not search.propose(at_once or cells_at_once()):
                break
        for record in search.failed(search.study):
            tell(f"{record.row} failed: {record.problem}")
        final = search.best()
        if final is None:
            tell(f"no trial is better than the recipe on the dev set ({search.describe(RECIPE_ROW)})")
            return Tuned(True, None)
        [best] = [row for row in final.rows if row != RECIPE_ROW]
        settings = ", ".join(f"{key}={value}" for row in final.rows.values() for key, value in row.settings.items())
        tell(
            f"{best} has {search.describe(best)} on the dev set, the recipe {search.describe(RECIPE_ROW)}; "
            f"training both with all seeds ({best}: {settings}) ..."
        )
        ended = train_all(final, BEST_STUDY, retry_failed=True)
        return Tuned(ended, final, search.failed(final))


class _Search:
    """The trials of a search, as its folder says."""

    def __init__(self, tuning: Tuning, out: Path, data: Path | str | None, tell: Callable[[str], None]) -> None:
        self.tuning, self.out, self.data, self.tell = tuning, out, data, tell
        self.trials = read_trials(out / TRIALS_STUDY)
        self.refused: dict[str, tuple[Settings, str]] = {}
        # What was refused may be possible now, or no longer be searched.
        for name, settings in read_refused(out / REFUSED_TRIALS).items():
            reason = self._refusal(name, settings) if has_settings(tuning, settings) else None
            if reason is not None:
                self.refused[name] = settings, reason

    @property
    def study(self) -> Study:
        return study_of(self.tuning, self.trials)

    def records(self) -> list[CellRecord]:
        return read_records(self.study, self.out)

    def describe(self, row: str) -> str:
        """Return the score of a row on the dev set, as in "bleu 31.2"."""
        scores = [record.score(VALID, self.tuning.metric) for record in self.records() if record.row == row]
        return f"{self.tuning.metric} {'-' if not scores or scores[0] is None else f'{scores[0]:.4g}'}"

    def missing(self, *, failed: bool) -> bool:
        """Return whether a trial, or the recipe, is still to be trained; with `failed`, also one that failed."""
        ended = [record for record in self.records() if not (failed and record.state == "failed")]
        return bool(self.trials) and len(ended) < 1 + len(self.trials)

    def failed(self, study: Study) -> tuple[CellRecord, ...]:
        return tuple(record for record in read_records(study, self.out) if record.state == "failed")

    def propose(self, count: int) -> bool:
        """Add at most `count` trials that can be trained, and return whether there are any."""
        trained, refused = len(self.trials), len(self.refused)
        last = ""
        while len(self.trials) < trained + count and len(self._searched()) < self.tuning.trials:
            tried = scored_trials(self.tuning, self._searched(), self.records())
            left = min(trained + count - len(self.trials), self.tuning.trials - len(tried))
            found = propose(self.tuning, tried, left)
            for settings in found:
                last = self._add(settings) or last
            save_refused(self.refused, self.out / REFUSED_TRIALS)
            save_study(self.study, self.out / TRIALS_STUDY)
            if len(self.refused) - refused >= MAX_REFUSED and len(self.trials) == trained:
                raise ConfigError(f"{MAX_REFUSED} trials in a row cannot be trained; the last one: {last}")
            if not found:
                self.tell(
                    f"the search ends after {len(tried)} of {counted(self.tuning.trials, 'trial')}, because all settings "
                    "that it has were tried"
                )
                break
        if last:
            self.tell(f"{counted(len(self.refused) - refused, 'trial')} cannot be trained; the last one: {last}")
        return len(self.trials) > trained

    def _add(self, settings: Settings) -> str | None:
        """Add a trial, and return why it cannot be trained; None if it can."""
        name = trial_name(1 + max(map(trial_number, self._every()), default=0))
        reason = self._refusal(name, settings)
        if reason is None:
            self.trials[name] = settings
        else:
            self.refused[name] = settings, reason
        return reason

    def _every(self) -> Trials:
        """Return the settings of all trials, in the order in which they were proposed."""
        every = {**self.trials, **{name: settings for name, (settings, _) in self.refused.items()}}
        return {name: every[name] for name in sorted(every, key=trial_number)}

    def _searched(self) -> Trials:
        """Return those of all trials that the search could propose. Its file may have had other ranges or keys before."""
        return {name: settings for name, settings in self._every().items() if has_settings(self.tuning, settings)}

    def _refusal(self, name: str, settings: Settings) -> str | None:
        """Return why a trial cannot be trained, or None if it can."""
        try:
            check_study(study_of(self.tuning, {name: settings}), data=self.data)
        except RegardError as error:
            return str(error).removeprefix(f"the row {name!r}: ")
        return None

    def best(self) -> Study | None:
        """Return the study of the best trial. Raise TrainingError if no trial has a score."""
        searched, records = self._searched(), self.records()
        if not any(record.row in searched and score_of(self.tuning, record) is not None for record in records):
            problems = [f"{record.row} {record.state}: {record.problem}" for record in records if record.problem]
            problems += [reason for _, reason in self.refused.values()]
            raise TrainingError(
                f"none of {counted(len(searched), 'trial')} has a score; {next(iter(problems), 'all are missing')}"
            )
        return best_study(self.tuning, searched, records)

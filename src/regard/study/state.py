"""How far a study is, as its folder says: which cells have ended, which remain, and how far each run is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regard.errors import CheckpointError
from regard.run.folder import RunFolder
from regard.study.cells import RECORD, RUN, Cell, read_record, recipe_of_cell, settings_digest, settings_of
from regard.study.choices import cells_of, choose_candidate, count_cells, known_records
from regard.study.records import STATES, CellRecord
from regard.study.study_file import VALID, Settings, Study

Stage = Literal["waiting", "training", "elsewhere", "scoring", "finished", "diverged", "failed"]


@dataclass(frozen=True)
class CellProgress:
    """How far a cell is."""

    cell: Cell
    stage: Stage
    step: int
    steps: int
    seconds: float  # of training
    score: float | None  # on the dev set: of the final weights, or of the last validation
    problem: str = ""

    @property
    def ended(self) -> bool:
        """Whether the cell has a record."""
        return self.stage in STATES


class StudyState:
    """What is on disk of a study. With `retry_failed`, cells that failed in earlier calls count as not trained."""

    def __init__(self, study: Study, out: Path | str, *, retry_failed: bool = True) -> None:
        self.study, self.out = study, Path(out)
        self._records: dict[str, CellRecord] = {}
        self._steps: dict[str, int] = {}
        self._retried: dict[str, int] = {}  # cells that failed in earlier calls, and when their record was written
        self.refresh()
        if retry_failed:
            for cell in self.cells():
                if (record := self._records.get(cell.key)) is not None and record.state == "failed":
                    self._retried[cell.key] = self._written(cell)
        for key in self._retried:
            del self._records[key]

    @property
    def records(self) -> list[CellRecord]:
        """The records of the cells that have ended."""
        return list(self._records.values())

    def chosen(self, row: str) -> Settings | None:
        """Return the candidate that is chosen for a row; None until its candidates have ended."""
        return choose_candidate(self.study, row, self._records)

    def refresh(self) -> None:
        """Read the records that have been written since the last call."""
        self._records = known_records(self.study, lambda cell: self._records.get(cell.key) or self._read(cell))

    def _read(self, cell: Cell) -> CellRecord | None:
        try:
            record = read_record(self.study, cell, self.out)
        except CheckpointError as error:  # damaged: this cell fails, and the others are trained
            record = self._failed(cell, str(error))
        if record is not None and record.state == "failed" and self._retried.get(cell.key) == self._written(cell):
            return None
        return record

    def _written(self, cell: Cell) -> int:
        """Return when the record of a cell was written. Another runner that has tried the cell again has changed it."""
        try:
            return (cell.folder(self.out).path / RECORD).stat().st_mtime_ns
        except OSError:
            return 0

    def _failed(self, cell: Cell, problem: str) -> CellRecord:
        return CellRecord(
            row=cell.row,
            candidate=cell.candidate,
            seed=cell.seed,
            state="failed",
            problem=problem,
            settings=settings_of(self.study, cell),
            settings_sha256=settings_digest(recipe_of_cell(self.study, cell)),
        )

    def give_up(self, cell: Cell, problem: str | None = None) -> None:
        """Count the failure of a cell from now on. With `problem`, its folder has no record of it, and cannot have one."""
        self._retried.pop(cell.key, None)
        if problem is not None:
            self._records[cell.key] = self._failed(cell, problem)
        self.refresh()

    def cells(self) -> list[Cell]:
        """Return all cells that are known by now."""
        return cells_of(self.study, self._records)

    def open_cells(self) -> list[Cell]:
        """Return the cells that have not ended."""
        return [cell for cell in self.cells() if cell.key not in self._records]

    def count(self, state: str) -> int:
        """Return how many cells have ended in a state."""
        return sum(record.state == state for record in self.records)

    @property
    def total(self) -> int:
        """The number of cells when all candidates are chosen."""
        return count_cells(self.study, self._records)

    def steps_of(self, cell: Cell) -> int:
        """Return how many steps a cell is trained for."""
        if cell.key not in self._steps:
            self._steps[cell.key] = recipe_of_cell(self.study, cell).train.steps
        return self._steps[cell.key]

    def progress(self, training: Collection[str] = (), elsewhere: Collection[str] = ()) -> list[CellProgress]:
        """Return how far each cell is. `training` are the keys of those that this runner trains, `elsewhere` another one."""
        return [self._progress_of(cell, training, elsewhere) for cell in self.cells()]

    def _progress_of(self, cell: Cell, training: Collection[str], elsewhere: Collection[str]) -> CellProgress:
        record, steps = self._records.get(cell.key), self.steps_of(cell)
        if record is not None:
            score = record.score(VALID, self.study.metric)
            return CellProgress(cell, record.state, record.steps, steps, record.seconds, score, record.problem)
        run = RunFolder(cell.folder(self.out).path / RUN)
        try:
            log = run.read_log() if run.exists else []
        except CheckpointError:  # the process of the cell reports it
            log = []
        last: dict[str, Any] = next((event for event in reversed(log) if event["event"] == "progress"), {})
        scored = [event for event in log if event["event"] == "validated"]
        score = scored[-1].get(self.study.metric) if scored else None
        stage: Stage = "training" if cell.key in training else "elsewhere" if cell.key in elsewhere else "waiting"
        if stage == "training" and run.finished:
            stage = "scoring"
        return CellProgress(cell, stage, last.get("step", 0), steps, last.get("seconds") or 0.0, score)


def seconds_left(state: StudyState, progress: list[CellProgress], at_once: int) -> float | None:
    """Return about how long the study still takes: all steps that remain, at the mean time per step so far."""
    steps, seconds = sum(one.step for one in progress), sum(one.seconds for one in progress)
    if not steps or not seconds:
        return None
    left = sum(one.steps - one.step for one in progress if not one.ended)
    unknown = state.total - len(progress)  # the other seeds of candidates that are not chosen yet
    mean = sum(one.steps for one in progress) / len(progress)
    return (left + unknown * mean) * seconds / steps / max(at_once, 1)

"""The process of one cell: `python -m regard.study.train_cell < JOB` trains or resumes it, scores it and writes its record.

Exit status: 0 if the cell has ended, finished or diverged; 1 after an error that another attempt may not have; 3 if the cell
cannot be trained, which stderr explains; 4 if a signal stopped it; 5 if another process has the cell.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from regard.errors import CheckpointError, ConfigError, DataError, Diverged, MissingExtra, RegardError
from regard.run.folder import RunFolder
from regard.signals import STOPPING
from regard.storage.folder import Folder
from regard.study.cells import (
    RECORD,
    RUN,
    Cell,
    CellRecord,
    SetScores,
    State,
    ValidationScores,
    is_tried,
    read_record,
    recipe_of_cell,
    settings_digest,
    settings_of,
)
from regard.study.study_file import VALID, Settings, Study, overrides_of

ENDED, FAILED, REFUSED, STOPPED, BUSY = 0, 1, 3, 4, 5
HELD = "another process has this cell"
NOT_SCORES = ("event", "step", "best", "crc")


class Job(msgspec.Struct, frozen=True):
    """What a process needs to know to train a cell."""

    study: Study
    out: str
    data: str | None
    row: str
    candidate: Settings
    seed: int
    at_once: int = 1  # cells that share the cores of the machine
    per_gpu: int = 1  # of them, those that share a GPU, or the machine if it has none

    @property
    def cell(self) -> Cell:
        return Cell(self.row, self.candidate, self.seed)


def train_cell(job: Job, *, stop: Callable[[], bool], scoring: Callable[[], None] = lambda: None) -> int:
    """Train and score a cell unless it has ended already, and return the exit status.

    `stop` is called after every step; `scoring` once, when training has finished.
    """
    folder = job.cell.folder(job.out)
    try:
        with folder.locked(busy=HELD):
            found = read_record(job.study, job.cell, job.out)
            # A failed cell is tried again.
            if found is not None and found.state != "failed":
                return ENDED
            return _train_and_score(job, folder, stop, scoring)
    except CheckpointError as error:
        if str(error) == HELD:
            return BUSY
        raise


def _train_and_score(job: Job, folder: Folder, stop: Callable[[], bool], scoring: Callable[[], None]) -> int:
    # After the lock: the import of torch takes seconds.
    from regard import api
    from regard.study.score_cell import score_cell

    run = RunFolder(folder.path / RUN)
    try:
        done = api.train(
            job.study.recipe,
            out=run.path,
            overrides=overrides_of(job.study, job.row, job.candidate, job.seed),
            data=job.data,
            listen=lambda event: None,
            stop=stop,
            warn=lambda text: None,
        )
    except Diverged as error:
        folder.save_bytes(RECORD, _encode(make_record(job, run, "diverged", problem=_without_place(error, job.out))))
        return ENDED
    if not done.finished:
        return STOPPED
    scoring()
    only = {VALID} if is_tried(job.study, job.cell) else None
    sets = score_cell(run, folder, job.study.recipe, job.data, only=only)
    _write_card(run, sets)
    # The final weights stay; checkpoints of all cells would fill the disk.
    run.keep(set())
    folder.save_bytes(RECORD, _encode(make_record(job, run, "finished", sets)))
    return ENDED


def make_record(
    job: Job, run: RunFolder, state: State, sets: list[SetScores] | None = None, *, problem: str = ""
) -> CellRecord:
    """Return the record of a cell, from the log of its run. Of a cell that failed, the log may be damaged."""
    try:
        log = run.read_log() if run.exists else []
    except CheckpointError:
        if state != "failed":
            raise
        log = []
    started = [event for event in log if event["event"] == "started"]
    progress = [event for event in log if event["event"] == "progress"]
    speeds = sorted(event["tokens_per_second"] for event in progress if event["tokens_per_second"] is not None)
    return CellRecord(
        row=job.row,
        candidate=job.candidate,
        seed=job.seed,
        state=state,
        problem=problem,
        settings=settings_of(job.study, job.cell),
        settings_sha256=settings_digest(recipe_of_cell(job.study, job.cell)),
        parameters=started[-1]["parameters"] if started else 0,
        steps=progress[-1]["step"] if progress else 0,
        dev=[
            ValidationScores(event["step"], {key: event[key] for key in event if _is_score(key, event[key])})
            for event in log
            if event["event"] == "validated"
        ],
        tests=sets or [],
        seconds=round(progress[-1]["seconds"] or 0.0, 1) if progress else 0.0,
        tokens_per_second=round(speeds[len(speeds) // 2]) if speeds else None,
        at_once=job.per_gpu,
        how=started[-1].get("how", "") if started else "",
        machine=started[-1].get("machine", {}) if started else {},
    )


def write_failure(job: Job, problem: str) -> None:
    """Write the record of a cell that could not be trained, unless another process has it or it has ended.

    Raise RegardError or OSError if the folder of the cell is damaged or cannot be written.
    """
    folder = job.cell.folder(job.out)
    try:
        with folder.locked(busy=HELD):
            found = read_record(job.study, job.cell, job.out)
            if found is None or found.state == "failed":
                run = RunFolder(folder.path / RUN)
                folder.save_bytes(RECORD, _encode(make_record(job, run, "failed", problem=problem)))
    except CheckpointError as error:
        if str(error) != HELD:
            raise


def _encode(record: CellRecord) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def _is_score(key: str, value: Any) -> bool:
    number = value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    return number and key not in NOT_SCORES


def _without_place(error: Exception, out: str) -> str:
    """Return the message without folders of this machine."""
    return str(error).replace(f"{Path(out)}{os.sep}", "")


def _write_card(run: RunFolder, sets: list[SetScores]) -> None:
    """Write the card of a run with its scores on the test sets."""
    from regard.run.card import make_card, write_card
    from regard.torch_loading import checked_weights, task_of_run

    task = task_of_run(run)
    checkpoint, name = checked_weights(run, task, task.load_codec(run.codec_folder()))
    results = [
        {
            "name": one.name,
            "num_pairs": one.pairs,
            "sha256": one.sha256,
            "search": one.search,
            "scores": [
                {"name": metric, "value": value, "signature": one.signatures.get(metric, "")}
                for metric, value in one.scores.items()
                if value is not None
            ],
        }
        for one in sets
        if one.name != VALID
    ]
    write_card(run, make_card(run, checkpoint, name, results))


def main() -> int:
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    parent, stopped = os.getppid(), False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True

    def end_at_once() -> None:
        # Nothing is lost: scoring begins anew.
        for one in STOPPING:
            signal.signal(one, signal.SIG_DFL)

    for one in STOPPING:
        signal.signal(one, stop)
    try:
        # A process whose runner was killed saves and stops too.
        return train_cell(job, stop=lambda: stopped or os.getppid() != parent, scoring=end_at_once)
    except RegardError as error:
        print(error, file=sys.stderr)
        return REFUSED if isinstance(error, ConfigError | DataError | CheckpointError | MissingExtra) else FAILED


if __name__ == "__main__":
    sys.exit(main())

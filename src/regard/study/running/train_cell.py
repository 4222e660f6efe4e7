"""The process of one cell: it trains or resumes the cell, scores it and writes its record.

    python -m regard.study.running.train_cell < JOB

Exit status: 0 if the cell has ended, finished or diverged; 1 after an error that another attempt may not have; 3 if the cell
cannot be trained, which stderr explains; 4 if a signal stopped it; 5 if another process has the cell.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

import msgspec

from regard.errors import Busy, CheckpointError, ConfigError, DataError, Diverged, MissingExtra, RegardError
from regard.process_end import end_process
from regard.recipe_files import recipe_folder
from regard.run.folder import RunFolder
from regard.signals import STOPPING
from regard.storage.folder import Folder
from regard.study.cells import RUN, forget_other_failure, is_tried, read_record, tests_of
from regard.study.choices import read_records
from regard.study.records import SetScores
from regard.study.running.job import BUSY, ENDED, FAILED, REFUSED, STOPPED, Job
from regard.study.running.record_from_log import HELD, make_record, write_record
from regard.study.same_text import OtherText, refuse_other_text
from regard.study.study_file import VALID, overrides_of
from regard.text.bitext import data_folders, pairs_fingerprint
from regard.training.events import Event, Started


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
            forget_other_failure(job.study, job.cell, job.out)
            return _train_and_score(job, folder, stop, scoring)
    except Busy:
        return BUSY


def _train_and_score(job: Job, folder: Folder, stop: Callable[[], bool], scoring: Callable[[], None]) -> int:
    # After the lock: the import of torch takes seconds.
    from regard import api
    from regard.study.running.score_cell import score_cell

    run = RunFolder(folder.path / RUN)
    new = not run.exists
    compared = False

    def listen(event: Event) -> None:
        nonlocal compared
        if isinstance(event, Started):
            _refuse_other_text(job, run)
            compared = True

    try:
        done = api.train(
            job.study.recipe_name(job.row),
            out=run.path,
            overrides=overrides_of(job.study, job.row, job.candidate, job.seed),
            data=job.data,
            listen=listen,
            stop=stop,
            warn=lambda text: None,
        )
    except Diverged as error:
        # What follows is advice for a run: its checkpoint, its batch, another run.
        problem, _, _ = str(error).partition(";")
        write_record(folder, make_record(job, run, "diverged", problem=problem))
        return ENDED
    except OtherText:
        if new:  # nothing is lost, and with the right text it can begin
            folder.remove(RUN)
        raise
    if not done.finished:
        return STOPPED
    if not compared:  # it was trained by another process, and is only to be scored
        _refuse_other_text(job, run)
    scoring()
    only = {VALID} if is_tried(job.study, job.cell) else None
    sets = score_cell(run, folder, job.study.recipe_name(job.row), job.data, only=only)
    _write_card(run, sets)
    # The final weights stay; checkpoints of all cells would fill the disk.
    run.keep(set())
    write_record(folder, make_record(job, run, "finished", sets))
    return ENDED


def _refuse_other_text(job: Job, run: RunFolder) -> None:
    """Raise OtherText if a cell would not be comparable with those that have finished."""
    from regard.study.test_sets import read_test_sets
    from regard.torch_loading import task_of_run

    others = read_records(job.study, job.out)
    if all(record.state != "finished" for record in others):
        return
    sets: list[SetScores] = []
    if not is_tried(job.study, job.cell):
        folders = data_folders(job.data, recipe_folder(job.study.recipe_name(job.row)))
        for name, examples in read_test_sets(task_of_run(run), folders).items():
            sets.append(SetScores(name, len(examples), str(pairs_fingerprint(examples)["sha256"]), "", {}, {}, ""))
    this = make_record(job, run, "finished", sets)
    refuse_other_text(job.study, [*others, this], tests_of(job.study))


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
    end_process(main())

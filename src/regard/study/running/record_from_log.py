"""Making and writing the record of a cell that has ended, from the log of its run."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from regard.errors import Busy, CheckpointError
from regard.recipe_files import recipe_folder
from regard.run.folder import RunFolder
from regard.storage.folder import Folder
from regard.study.cells import RECORD, RUN, read_record, recipe_of_cell, settings_digest, settings_of
from regard.study.records import CellRecord, SetScores, State, ValidationScores
from regard.study.running.job import Job
from regard.study.same_text import corpus_hashes

HELD = "another process has this cell"
NOT_SCORES = ("event", "step", "best", "crc")
# The folders of an absolute path, but not those of an address.
ABSOLUTE = re.compile(r"(?<![^\s'\"(\[=,:])/(?:[^\s/'\"]+/)+")


def make_record(
    job: Job, run: RunFolder, state: State, sets: list[SetScores] | None = None, *, problem: str = ""
) -> CellRecord:
    """Return the record of a cell, from the log of its run. Of a cell that failed, the log may be damaged."""
    log: list[dict[str, Any]] = []
    corpus: dict[str, str] = {}
    try:
        if run.exists:
            log, corpus = run.read_log(), corpus_hashes(run.corpus())
    except CheckpointError:
        if state != "failed":
            raise
    started = [event for event in log if event["event"] == "started"]
    progress = [event for event in log if event["event"] == "progress"]
    speeds = sorted(event["tokens_per_second"] for event in progress if event["tokens_per_second"] is not None)
    return CellRecord(
        row=job.row,
        candidate=job.candidate,
        seed=job.seed,
        state=state,
        problem=_without_folders(problem, job),
        settings=settings_of(job.study, job.cell),
        settings_sha256=settings_digest(recipe_of_cell(job.study, job.cell)),
        corpus=corpus,
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
        sharing_device=job.sharing_device,
        how=started[-1].get("how", "") if started else "",
        machine=started[-1].get("machine", {}) if started else {},
    )


def _without_folders(problem: str, job: Job) -> str:
    """Return a message without folders of this machine, because records are published in bundles."""
    # Names of folders that are known may have spaces.
    for folder in (job.out, job.data, recipe_folder(job.study.recipe_name(job.row))):
        if folder and Path(folder).is_absolute() and Path(folder).name:
            problem = problem.replace(f"{folder}{os.sep}", "").replace(str(folder), Path(folder).name)
    return ABSOLUTE.sub("", problem)


def write_record(folder: Folder, record: CellRecord) -> None:
    """Write the record into the folder of its cell."""
    folder.save_bytes(RECORD, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")


def write_failure(job: Job, problem: str) -> None:
    """Write the record of a cell that could not be trained, unless another process has it or it has ended.

    Raise RegardError or OSError if the folder of the cell is damaged or cannot be written.
    """
    folder = job.cell.folder(job.out)
    with suppress(Busy), folder.locked(busy=HELD):
        found = read_record(job.study, job.cell, job.out)
        if found is None or found.state == "failed":
            run = RunFolder(folder.path / RUN)
            write_record(folder, make_record(job, run, "failed", problem=problem))


def _is_score(key: str, value: Any) -> bool:
    number = value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    return number and key not in NOT_SCORES

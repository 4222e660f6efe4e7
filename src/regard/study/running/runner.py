"""A study trained to its end: the cells that are missing, several at a time, resumed where they were stopped.

What is on disk decides. Any number of runners may work in one folder: a cell belongs to the process that holds its lock.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from regard.errors import ConfigError, RegardError
from regard.messages import counted, format_duration
from regard.storage.folder import Folder
from regard.study.cells import Cell, is_tried
from regard.study.checks import check_study
from regard.study.running.grid_page import PAGE, as_page
from regard.study.running.job import BUSY, ENDED, REFUSED, STOPPED, Job
from regard.study.running.record_from_log import write_failure
from regard.study.running.workers import END_SECONDS, Start, Worker, cells_at_once, start_here
from regard.study.state import CellProgress, StudyState, seconds_left
from regard.study.study_file import Study, read_study
from regard.text.bitext import named_folder

POLL_SECONDS = 0.5
SHOW_SECONDS = 2.0  # between two readings of all logs
BUSY_SECONDS = 5.0  # until a cell of another runner, or one whose record is not visible yet, is tried again
MAX_ATTEMPTS = 3  # at a cell whose process crashes
ERRORS = "errors.txt"  # in the folder of a cell that failed: all that its process printed


def run_study(
    study: Study | Path | str,
    *,
    out: Path | str,
    data: Path | str | None = None,
    at_once: int | None = None,
    seconds: float | None = None,
    show: Callable[[str], None] = lambda text: None,
    warn: Callable[[str], None] = lambda text: None,
    stop: Callable[[], bool] = lambda: False,
    start: Start | None = None,
    retry_failed: bool = True,
) -> StudyState:
    """Train and score every cell of a study that has not ended, and return its state.

    The study is a .toml file, or what `read_study` returns. Cells train `at_once` at a time; without it, one per GPU. After
    `seconds`, or when `stop` returns True, the cells that are training save and stop, and a later call resumes them. A cell
    that diverges or fails does not stop the others. `show` receives progress, and a page in the folder shows the grid.
    `start` starts the process of a cell, by default on this machine. Cells that failed in an earlier call are tried again
    unless `retry_failed` is False.
    """
    if (at_once is not None and at_once < 1) or (seconds is not None and seconds <= 0):
        raise ConfigError("at_once must be at least 1, and seconds above 0")
    study = study if isinstance(study, Study) else read_study(study)
    check_study(study, data=data, warn=warn)
    Folder(out).make()
    # Absolute paths, because a worker on another machine may be in another folder, and not have REGARD_DATA.
    folder = named_folder(data)
    runner = _Runner(
        StudyState(study, Path(out).absolute(), retry_failed=retry_failed),
        None if folder is None else str(folder.absolute()),
        at_once or cells_at_once(),
        show,
        start or start_here,
    )
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    try:
        # Asked first, so that no cell is started only to be stopped.
        while not stop() and time.monotonic() < deadline and runner.advance():
            time.sleep(POLL_SECONDS)
    finally:
        runner.end()
    return runner.state


class _Runner:
    """The cells of a study in training by this process."""

    def __init__(
        self,
        state: StudyState,
        data: str | None,
        at_once: int,
        show: Callable[[str], None],
        start: Start,
    ) -> None:
        self.state, self.study, self.out = state, state.study, state.out
        self.data, self.at_once, self.show, self.start = data, at_once, show, start
        self.workers: dict[str, Worker] = {}
        self.attempts: Counter[str] = Counter()
        self.elsewhere: dict[str, float] = {}  # cells of other runners, and when to try them again
        self.next_show = 0.0

    def advance(self) -> bool:
        """Collect what has ended and start what is next. Return whether anything remains to be done."""
        for key in [key for key, worker in self.workers.items() if worker.poll() is not None]:
            self._collect(self.workers.pop(key))
        self.state.refresh()
        now, remaining = time.monotonic(), self.state.open_cells()
        for cell in sorted(remaining, key=self._priority):
            if len(self.workers) >= self.at_once:
                break
            if cell.key not in self.workers and now >= self.elsewhere.get(cell.key, 0.0):
                self.elsewhere.pop(cell.key, None)
                self.workers[cell.key] = self.start(self._job(cell), self.workers.values())
        if now >= self.next_show:
            self.next_show = now + SHOW_SECONDS
            self._show()
        return bool(remaining)

    def end(self) -> None:
        """Let the cells that are training save and stop, and write the page."""
        for worker in self.workers.values():
            worker.ask_to_stop()
        deadline = time.monotonic() + END_SECONDS
        for worker in self.workers.values():
            worker.end(max(0.0, deadline - time.monotonic()))
        for worker in self.workers.values():
            if worker.poll() == REFUSED:
                self._collect(worker)
            else:
                worker.errors()
        self.workers.clear()
        self.state.refresh()
        self._show()

    def _priority(self, cell: Cell) -> tuple[bool, int]:
        """Return a key to sort cells by: candidates first, because others wait for a choice, and long ones before short."""
        return not is_tried(self.study, cell), -self.state.steps_of(cell)

    def _job(self, cell: Cell) -> Job:
        shared = -(-self.at_once // cells_at_once())
        return Job(
            study=self.study,
            out=str(self.out),
            data=self.data,
            row=cell.row,
            candidate=cell.candidate,
            seed=cell.seed,
            sharing_cores=self.at_once,
            sharing_device=shared,
        )

    def _collect(self, worker: Worker) -> None:
        """Note how a process has ended. A crash is tried again a few times, a refusal is not.

        A process that was asked to stop by someone else has saved its cell, which resumes: that is no crash.
        """
        status, errors, cell = worker.poll(), worker.errors(), worker.job.cell
        # On a shared disk, the record of a cell that has ended may appear late, in particular if another machine wrote it.
        if status in (ENDED, BUSY):
            self.elsewhere[cell.key] = time.monotonic() + BUSY_SECONDS
            return
        if status == STOPPED:
            return
        self.attempts[cell.key] += 1
        if status == REFUSED or self.attempts[cell.key] >= MAX_ATTEMPTS:
            crashed = f"its process was killed by signal {-(status or 0)}" if (status or 0) < 0 else "its process ended"
            problem = errors.splitlines()[-1] if errors else crashed
            try:
                write_failure(worker.job, problem)
                cell.folder(self.out).save_text(ERRORS, f"{errors}\n")
            except (RegardError, OSError) as error:
                self.state.give_up(cell, f"{problem}; no record was written, because {error}")
            else:
                self.state.give_up(cell)

    def _show(self) -> None:
        progress = self.state.progress(self.workers, self.elsewhere)
        left = seconds_left(self.state, progress, self.at_once)
        page = as_page(self.state, progress, left=left)
        Folder(self.out).save_text(PAGE, page)
        self.show(describe_progress(self.state, progress, left))


def describe_progress(state: StudyState, progress: list[CellProgress], left: float | None) -> str:
    """Return on one line how far a study is."""
    parts = [f"{len(state.records)}/{counted(state.total, 'cell')}"]
    parts += [f"{count} {name}" for name in ("diverged", "failed") if (count := state.count(name))]
    if left and state.open_cells():
        parts.append(f"about {format_duration(left)} left")
    training = [one for one in progress if one.stage in ("training", "scoring")]
    parts += [f"{one.cell.key} {one.step}/{one.steps}" for one in training]
    return "  ".join(parts)

"""A runner of studies whose processes are forked, so that none of them has to import PyTorch.

The runner is forked from a process that has imported it, and forks the processes of its cells. Signals end them as they end
those that `regard study run` starts.
"""

import multiprocessing
import os
import sys
from pathlib import Path

from regard.study.running.runner import run_study
from regard.study.running.train_cell import train_cell
from tests.commands import Forked

ROOT = Path(__file__).parents[2]
PROGRAM = "import os; os.setsid(); from tests.study.forked_runner import run; run({file!r}, {out!r})"


def start_runner(file, out):
    """Start a runner in a process group of its own."""
    return Forked((), program=PROGRAM.format(file=str(file), out=str(out)), cwd=ROOT)


def run(file, out):
    """Train all cells of a study. The exit status is the number of those that have not ended."""
    state = run_study(file, out=out, start=ForkedWorker)
    sys.exit(len(state.open_cells()))


class ForkedWorker:
    """A process that trains a cell. It saves and stops when its runner is gone."""

    def __init__(self, job, running):
        self.job, self.parent = job, os.getpid()
        self.process = multiprocessing.get_context("fork").Process(target=self.train)
        self.process.start()

    def train(self):
        sys.exit(train_cell(self.job, stop=lambda: os.getppid() != self.parent))

    def poll(self):
        return self.process.exitcode

    def ask_to_stop(self):
        self.process.terminate()

    def end(self, seconds):
        self.process.join()

    def errors(self):
        return ""

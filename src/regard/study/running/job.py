"""The job of one process: the cell that it trains, and the exit status that says how it ended."""

from __future__ import annotations

import msgspec

from regard.study.cells import Cell
from regard.study.study_file import Settings, Study

# The cell has ended, finished or diverged; an error that another attempt may not have; a cell that cannot be trained, which
# stderr explains; stopped by a signal; another process has the cell.
ENDED, FAILED, REFUSED, STOPPED, BUSY = 0, 1, 3, 4, 5


class Job(msgspec.Struct, frozen=True):
    """What a process needs to know to train a cell."""

    study: Study
    out: str
    data: str | None
    row: str
    candidate: Settings
    seed: int
    sharing_cores: int = 1  # cells that share the cores of the machine
    sharing_device: int = 1  # of them, those that share a GPU, or the machine if it has none

    @property
    def cell(self) -> Cell:
        return Cell(self.row, self.candidate, self.seed)

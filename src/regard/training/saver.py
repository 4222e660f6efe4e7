"""Checkpoints written in the background: training hands over a copy and goes on.

One is written at a time. A checkpoint counts as saved when it is whole on the disk; what goes wrong meanwhile is told the
next time training looks.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from regard.errors import TrainingError
from regard.run.checkpoint import Checkpoint, copy_of
from regard.run.folder import RunFolder


class Saver:
    """Writes checkpoints of a run. `saved` hears of each one that is on the disk, `failed` of each that could not be.

    Both are called from the thread that trains, in `look` and `wait`.
    """

    def __init__(
        self, run: RunFolder, *, saved: Callable[[int, Path], None], failed: Callable[[int, OSError], None]
    ) -> None:
        self.run = run
        self.saved, self.failed = saved, failed
        self._copy: Checkpoint | None = None
        self._thread: threading.Thread | None = None
        self._outcome: tuple[int, Path | BaseException] | None = None

    def save(self, checkpoint: Checkpoint, *, step: int, keep: set[int]) -> None:
        """Begins to write a checkpoint, and lets go of all but those of these steps once it is whole."""
        self.wait()
        self._copy = copy_of(checkpoint, into=self._copy)
        self._thread = threading.Thread(target=self._write, args=(self._copy, step, keep), name="saver")
        self._thread.start()

    def look(self) -> None:
        """Tells what has happened since the last look, without waiting."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Waits until nothing is being written, and tells what happened."""
        if self._thread is None:
            return
        self._thread.join()
        self._thread = None
        assert self._outcome is not None, "the writer left no word"
        (step, result), self._outcome = self._outcome, None
        if isinstance(result, Path):
            self.saved(step, result)
        elif isinstance(result, OSError):
            self.failed(step, result)
        else:
            raise result

    def _write(self, checkpoint: Checkpoint, step: int, keep: set[int]) -> None:
        try:
            self._outcome = step, self.run.save(checkpoint, step=step)
            with suppress(OSError):  # an old checkpoint that does not go away does no harm
                self.run.keep(keep)
        except BaseException as error:
            self._outcome = step, error


def disk_error(error: OSError, last: int | None) -> TrainingError:
    """The sentence for a checkpoint that could not be written."""
    kept = "no checkpoint was written yet" if last is None else f"the checkpoint of step {last} is whole"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TrainingError(f"the disk is full; {kept}: make room and give the same command again")
    return TrainingError(f"a checkpoint cannot be written ({error.strerror or error}); {kept}")

"""Checkpoints written in the background, and the weights that a run ends with: last, best, or a mean (section 6.1).

One checkpoint is written at a time. It counts as saved when all of it is on the disk. Errors of the writing thread are
reported the next time the training thread polls.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from torch import Tensor

from regard.config import TrainConfig
from regard.errors import TrainingError
from regard.run.checkpoint import Checkpoint, copy_of
from regard.run.folder import RunFolder
from regard.run.weights import Shapes


def mean_weights(checkpoints: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of several checkpoints, of which one is in memory at a time."""
    total: dict[str, Tensor] = {}
    count = 0
    for weights in checkpoints:
        count += 1
        for name, weight in weights.items():
            total[name] = total[name] + weight.double() if name in total else weight.double()
    assert count, "no checkpoints to average"
    return {name: (sums / count).float() for name, sums in total.items()}


def final_weights(
    run: RunFolder,
    config: TrainConfig,
    shapes: Shapes,
    *,
    current: dict[str, Tensor],
    step: int,
    best: int | None,
) -> tuple[dict[str, Tensor], list[int]]:
    """Return the weights that a run ends with, and the steps they come from.

    `current` are the weights after the last step, `step`. `best` is the best step with a checkpoint, if one is known.
    """
    written = run.steps()
    if config.final == "best" and best is not None:
        return run.checkpoint_at(best, shapes).weights, [best]
    if config.average > 1 and written:
        steps = sorted({*regular_steps(written, config), written[-1]})[-config.average :]
        return mean_weights(run.checkpoint_at(one, shapes).weights for one in steps), steps
    return current, [step]


class Saver:
    """Writes the checkpoints of a run.

    Calls `saved` for each checkpoint that is on the disk and `failed` for each that could not be written, both from the
    training thread, in `poll` and `wait`.
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
        """Start to write a checkpoint. Once it is complete, remove all checkpoints but those of the steps in `keep`."""
        self.wait()
        self._copy = copy_of(checkpoint, into=self._copy)
        self._thread = threading.Thread(target=self._write, args=(self._copy, step, keep), name="saver")
        self._thread.start()

    def poll(self) -> None:
        """Report what was written since the last call, without waiting."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Wait until nothing is being written, and report what was."""
        if self._thread is None:
            return
        self._thread.join()
        self._thread = None
        assert self._outcome is not None, "the writing thread set no outcome"
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
            # An old checkpoint that cannot be removed does no harm.
            with suppress(OSError):
                self.run.keep(keep)
        except BaseException as error:
            self._outcome = step, error


def regular_steps(steps: Iterable[int], config: TrainConfig) -> list[int]:
    """Return the steps, sorted, at which an uninterrupted run has a checkpoint too.

    Checkpoints that an interrupted run wrote in between are not averaged.
    """
    return [step for step in sorted(set(steps)) if step % config.checkpoint_every == 0 or step == config.steps]


def steps_to_keep(config: TrainConfig, *, written: list[int], step: int, best: Iterable[int | None]) -> set[int]:
    """Return the steps whose checkpoints stay when the one of `step` has been written.

    `best` are the best step so far, and the best one that is on the disk already, which stays until then.
    """
    keep = {step, *regular_steps([*written, step], config)[-max(config.keep, config.average) :]}
    if config.final == "best":
        keep |= {one for one in best if one is not None}
    return keep


def disk_error(error: OSError, last: int | None) -> TrainingError:
    """Return the error for a checkpoint that could not be written; `last` is the step of the newest one on the disk."""
    kept = "no checkpoint was written yet" if last is None else f"the checkpoint of step {last} is intact"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TrainingError(f"the disk is full; {kept}: make room and give the same command again")
    return TrainingError(f"a checkpoint cannot be written ({error.strerror or error}); {kept}")

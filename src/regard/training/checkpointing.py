"""The checkpoints of a run: when one is written, which ones stay, where training resumes, and the final weights."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from regard.config import TrainConfig
from regard.run.checkpoint import Checkpoint, weight_shapes
from regard.run.folder import RunFolder
from regard.training.events import Listener, Noted, Saved
from regard.training.saver import Saver, disk_error, final_weights, steps_to_keep
from regard.training.step_stats import StepStats
from regard.training.training_state import TrainingState
from regard.training.world import World


class Checkpointing:
    """Saves the state of training in a run folder, and restores it. One process writes, but all must call the methods."""

    def __init__(
        self,
        run: RunFolder,
        state: TrainingState,
        config: TrainConfig,
        *,
        stats: StepStats,
        world: World,
        listen: Listener,
    ) -> None:
        self.run, self.state, self.config = run, state, config
        self.stats, self.world, self.listen = stats, world, listen
        self.saver = Saver(run, saved=self._report_saved, failed=self._report_not_saved)
        self.saved_step = 0  # of the last checkpoint, complete or not
        self.best_on_disk: int | None = None  # the best step that has a complete checkpoint

    def save(self) -> None:
        """Start writing a checkpoint, unless this step already has one."""
        counters = self.state.counters
        if self.saved_step == counters.step:
            return
        self.stats.read(counters)
        self.saved_step = counters.step
        if not (self.world.writes or self.state.distributed.sharded):
            return
        checkpoint = self.state.checkpoint()
        if not self.world.writes:
            return
        # Which checkpoints to keep depends on those that are complete.
        self.saver.wait()
        best = (counters.best_step, self.best_on_disk)
        keep = steps_to_keep(self.config, written=self.run.steps(), step=counters.step, best=best)
        self.saver.save(checkpoint, step=counters.step, keep=keep)

    def poll(self) -> None:
        """Report what was written since the last call, without waiting."""
        self.saver.poll()

    def wait(self) -> None:
        """Wait until nothing is being written, and report what was."""
        self.saver.wait()

    def _report_saved(self, step: int, folder: Path) -> None:
        if step == self.state.counters.best_step:
            self.best_on_disk = step
        self.listen(Saved(step, folder))

    def _report_not_saved(self, step: int, error: OSError) -> None:
        problem = disk_error(error, max(self.run.steps(), default=None))
        if self.config.disk_full == "stop":
            raise problem from error
        self.listen(Noted(step, f"the checkpoint of step {step} was not written ({problem}); training continues"))

    def resume(self) -> None:
        """Load the newest intact checkpoint if there is one, else prepare a new run."""
        newest = self._find_checkpoint() if self.world.writes else None
        newest = self.world.gather(newest)[0]
        if newest is None:
            self.state.begin()
            return
        checkpoint = self.run.read_checkpoint(newest, weight_shapes(self.state.model), training=True)
        self.state.restore(checkpoint, origin=f"{self.run}/checkpoints/{newest}")
        self.saved_step, self.best_on_disk = self.state.counters.step, self.state.counters.best_step

    def _find_checkpoint(self) -> str | None:
        """Return the newest intact checkpoint. Report damaged ones, and remove later events from the log."""
        self.run.sweep()
        newest, problems = self.run.latest()
        problems += self.run.log_problems()
        step = -1 if newest is None else int(newest.removeprefix("step-"))
        self.run.rewind_log(step)
        for problem in problems:
            self.listen(Noted(max(step, 0), problem))
        return newest

    def write_final(self) -> None:
        """Write the final weights, which ends the run."""
        current = self.state.weights()
        if self.world.writes:
            self._write_final(current)
        # A process that ended earlier would break the connection of the others.
        self.world.wait()

    def _write_final(self, current: dict[str, Tensor]) -> None:
        counters, shapes = self.state.counters, weight_shapes(self.state.model)
        best = counters.best_step if counters.best_step in self.run.steps() else self.best_on_disk
        weights, steps = final_weights(self.run, self.config, shapes, current=current, step=counters.step, best=best)
        try:
            self.run.finish(Checkpoint(weights, {}, {**vars(counters), "from_steps": steps}))
        except OSError as error:
            raise disk_error(error, max(self.run.steps(), default=None)) from error

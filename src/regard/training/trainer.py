"""The training loop: steps, validation, checkpoints, and going on from where a run stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.config import TrainConfig
from regard.data.batch_sampler import Position
from regard.data.loader import Loader
from regard.data.packing import PackedLoader
from regard.errors import TrainingError
from regard.models.base import Model
from regard.nn.device import pick_precision
from regard.run.checkpoint import Checkpoint, load_weights, model_weights, weight_shapes
from regard.run.folder import RunFolder
from regard.run.machine import describe_machine
from regard.training.averaging import mean_weights
from regard.training.counters import Counters
from regard.training.cuda_graph import CudaGraphStep
from regard.training.data_parallel import DistributedModel
from regard.training.events import Listener, Noted, Saved, Started, Validated, Validation
from regard.training.memory_check import out_of_memory
from regard.training.prefetch import prefetch
from regard.training.saver import Saver, disk_error
from regard.training.schedules import learning_rate
from regard.training.step import training_step
from regard.training.step_stats import StepStats
from regard.training.training_state import TrainingState
from regard.training.watchdog import Watchdog
from regard.training.world import World

Validate = Callable[[Model], Validation]
Batches = Generator[tuple[Any, Position], None, None]


class Trainer:
    """Trains a model into a run folder. `validate` scores the model on the dev set; `stop` is asked after every step."""

    def __init__(
        self,
        model: Model,
        loader: Loader | PackedLoader,
        config: TrainConfig,
        run: RunFolder,
        *,
        world: World,
        validate: Validate | None,
        higher_is_better: bool = False,
        listen: Listener,
        stop: Callable[[], bool],
    ) -> None:
        self.model, self.loader, self.config, self.run = model, loader, config, run
        self.world, self.validate, self.listen, self.stop = world, validate, listen, stop
        self.sign = 1 if higher_is_better else -1  # of `train.metric`
        self.device = next(model.parameters()).device
        self.precision = pick_precision(config.precision, self.device)
        distributed = DistributedModel(model, smoothing=config.label_smoothing, world=world, parallel=config.parallel)
        self.state = TrainingState(distributed, config)
        self.rate = learning_rate(config, width=model.width)
        self.saved_step = 0
        self.best_on_disk: int | None = None
        self.saver = Saver(run, saved=self._saved, failed=self._not_saved)
        self.costs = StepStats(run, config, writes=world.writes, listen=listen)
        stalled = "stalled.txt" if world.writes else f"stalled-{world.rank}.txt"
        self.watchdog = Watchdog(run.folder, stalled, seconds=config.stall_seconds)

    @property
    def counters(self) -> Counters:
        return self.state.counters

    def fit(self) -> bool:
        """Trains to the end, or until asked to stop; whether the run is finished."""
        try:
            with self.watchdog:
                return self._fit()
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            step = self.counters.step + 1
            raise TrainingError(
                f"memory ran out at step {step}; the last checkpoint is kept: begin again with fewer train.tokens"
            ) from error
        finally:
            self.saver.wait()  # whatever ends training, a checkpoint being written is finished first

    def _fit(self) -> bool:
        self._resume()
        config, counters = self.config, self.counters
        size, machine = self.model.num_parameters(), describe_machine(self.device)
        self.listen(Started(counters.step, config.steps, size, self._how(), counters.seconds, machine))
        batches, step = self._batches_and_step(self._position())
        with closing(batches):
            finished = self._take_steps(batches, step)
        if finished:
            self._finish()
        return finished

    def _take_steps(self, batches: Batches, step: Callable[..., Tensor]) -> bool:
        """Until there are no more to take, or it is asked to stop; whether all were taken."""
        config, counters = self.config, self.counters
        read_every = config.log_every if self.device.type == "cuda" else 1  # reading makes a GPU wait
        before, started = counters.seconds, time.monotonic()
        self.costs.begin()
        while counters.step < config.steps and not self._out_of_patience():
            if (counters.step % read_every == 0 or self.world.size == 1) and self.world.any(self.stop()):
                if self.saved_step != counters.step:
                    self._save()
                return False
            micro_batches = list(islice(batches, config.accumulate))
            taken = [batch for batch, _ in micro_batches]
            self.model.train()
            self.model.noise.seed(config.seed, counters.step, rank=self.world.rank)
            self.costs.unread.append((step(taken, rate=self.rate(counters.step + 1)), taken))
            counters.step += 1
            self.watchdog.step()
            position = micro_batches[-1][1]
            counters.epoch, counters.block, counters.batch = position.epoch, position.block, position.batch
            counters.seconds = before + time.monotonic() - started
            self.state.after_step()
            if len(self.costs.unread) >= read_every:
                self.costs.read(counters)
            if counters.step % config.log_every == 0 or counters.step == config.steps:
                self.costs.read(counters)
                self.costs.report(counters, rate=self.rate(counters.step))
            self.saver.look()
            paused = time.monotonic()
            self._pause()
            self.costs.started += time.monotonic() - paused  # tokens a second are those of training alone
        return True

    def _position(self) -> Position:
        """Where the data goes on: with the next epoch, if the machine now makes other batches than the one before."""
        counters, kind = self.counters, type(self.loader).__name__
        if counters.batching not in ("", kind):
            self.listen(Noted(counters.step, "batches are made another way on this machine; the next epoch is begun"))
            counters.epoch, counters.block, counters.batch = counters.epoch + 1, 0, 0
        counters.batching = kind
        return Position(counters.epoch, counters.block, counters.batch)

    def _batches_and_step(self, position: Position) -> tuple[Batches, Callable[..., Tensor]]:
        """Where batches come from, and what takes a step with them."""
        distributed, optimizer = self.state.distributed, self.state.optimizer
        config, loader, world = self.config, self.loader, self.world
        if isinstance(loader, Loader):
            return loader.batches(position, rank=world.rank, ranks=world.size), partial(
                training_step, distributed, optimizer, config=config, precision=self.precision
            )

        def note(text: str) -> None:
            self.listen(Noted(self.counters.step, text))

        step = CudaGraphStep(distributed, optimizer, config, precision=self.precision, note=note)
        return prefetch(loader, position, world), step

    def _how(self) -> str:
        """What training was chosen to run on, in one line."""
        dtype = str(self.precision).removeprefix("torch.")
        holding = "shards" if self.state.distributed.sharded else "copies"
        many = [f"{self.world.size} processes with {holding} of the model"] if self.world.size > 1 else []
        if self.device.type == "cpu":
            return ", ".join(["cpu", f"{torch.get_num_threads()} threads", dtype, *many])
        packed = "packed batches, our kernels" if isinstance(self.loader, PackedLoader) else "bucketed batches"
        return ", ".join([self.device.type, dtype, packed, *many])

    def _pause(self) -> None:
        """Validates and writes a checkpoint, each when it is time; validation first, so that the best is known."""
        config, step = self.config, self.counters.step
        last = step == config.steps
        if self.validate and (last or step % (config.validate_every or config.checkpoint_every) == 0):
            self._validate()
        if last or step % config.checkpoint_every == 0:
            self._save()

    def _validate(self) -> None:
        assert self.validate is not None
        config, counters = self.config, self.counters
        average = self.state.average
        trained = model_weights(self.model)
        if average is not None:
            trained = {name: weight.clone() for name, weight in trained.items()}
            load_weights(self.model, average.average, origin="the moving average")
        self.model.eval()
        with self.state.distributed.gathered():
            found = self.validate(self.model)
        if average is not None:
            load_weights(self.model, trained, origin="the trained weights")
        score = found.metrics[config.metric]
        best = math.isfinite(score) and (counters.best is None or self.sign * score > self.sign * counters.best)
        if best:
            counters.best, counters.best_step, counters.without_better = score, counters.step, 0
        else:
            counters.without_better += 1
        self.listen(Validated(counters.step, found.metrics, found.examples, best, found.details))
        for warning in found.warnings:
            self.listen(Noted(counters.step, warning))
        if best and counters.step % config.checkpoint_every and config.final == "best":
            self._save()  # after it was reported, so that a resumed run has that in its log

    def _out_of_patience(self) -> bool:
        return 0 < self.config.patience <= self.counters.without_better

    # Checkpoints

    def _save(self) -> None:
        config, counters = self.config, self.counters
        if self.saved_step == counters.step:
            return
        self.costs.read(counters)
        self.saved_step = counters.step
        if not (self.world.writes or self.state.distributed.sharded):
            return
        checkpoint = self.state.checkpoint()
        if not self.world.writes:
            return
        self.saver.wait()  # the steps that are there must be known, to decide which to keep
        regular = self._regular_steps([*self.run.steps(), counters.step])
        keep = {counters.step, *regular[-max(config.keep, config.average) :]}
        if config.final == "best":  # the best one, and the one before it until that is on the disk
            keep |= {step for step in (counters.best_step, self.best_on_disk) if step is not None}
        self.saver.save(checkpoint, step=counters.step, keep=keep)

    def _saved(self, step: int, folder: Path) -> None:
        if step == self.counters.best_step:
            self.best_on_disk = step
        self.listen(Saved(step, folder))

    def _not_saved(self, step: int, error: OSError) -> None:
        last = max(self.run.steps(), default=None)
        problem = disk_error(error, last)
        if self.config.disk_full == "stop":
            raise problem from error
        self.listen(Noted(step, f"the checkpoint of step {step} was not written ({problem}); training goes on"))

    def _regular_steps(self, steps: list[int]) -> list[int]:
        """Those that an uninterrupted run has too; checkpoints of a stop in between take no part in the average."""
        return [
            step for step in sorted(set(steps)) if step % self.config.checkpoint_every == 0 or step == self.config.steps
        ]

    def _resume(self) -> None:
        newest = self._look_for_checkpoint() if self.world.writes else None
        newest = self.world.gather(newest)[0]
        if newest is None:
            self.state.begin()
            return
        checkpoint = self.run.read_checkpoint(newest, weight_shapes(self.model), training=True)
        self.state.restore(checkpoint, origin=f"{self.run}/checkpoints/{newest}")
        self.saved_step, self.best_on_disk = self.counters.step, self.counters.best_step

    def _look_for_checkpoint(self) -> str | None:
        """The newest intact checkpoint; the log is cut back to it, and what was found damaged is reported."""
        self.run.sweep()
        newest, complaints = self.run.latest()
        complaints += self.run.log_problems()
        step = -1 if newest is None else int(newest.removeprefix("step-"))
        self.run.rewind_log(step)
        for complaint in complaints:
            self.listen(Noted(max(step, 0), complaint))
        return newest

    def _finish(self) -> None:
        """Chooses the final weights and ends the run."""
        config, counters = self.config, self.counters
        if self._out_of_patience():
            if self.saved_step != counters.step:
                self._save()
            self.listen(Noted(counters.step, f"no better {config.metric} for {config.patience} validations; stopping"))
        self.saver.wait()
        if 2 * counters.skipped > counters.step:
            raise TrainingError(
                f"{counters.skipped:,} of {counters.step:,} steps had a gradient that is not finite and were left out; "
                "begin a new run (--out) with a lower train.lr, or with train.clip_norm=1"
            )
        current = self.state.weights()
        if self.world.writes:
            self._write_final(current)
        self.world.wait()  # whoever is done first would end the others' connection

    def _write_final(self, current: dict[str, Tensor]) -> None:
        config, counters, shapes = self.config, self.counters, weight_shapes(self.model)
        best = counters.best_step if counters.best_step in self.run.steps() else self.best_on_disk
        if config.final == "best" and best is not None:
            weights, of = self.run.checkpoint_at(best, shapes).weights, [best]
        elif config.average > 1 and self.run.steps():
            of = sorted({*self._regular_steps(self.run.steps()), self.run.steps()[-1]})[-config.average :]
            weights = mean_weights(self.run.checkpoint_at(step, shapes).weights for step in of)
        else:
            weights, of = current, [counters.step]
        try:
            self.run.finish(Checkpoint(weights, {}, {**vars(counters), "from_steps": of}))
        except OSError as error:
            raise disk_error(error, max(self.run.steps(), default=None)) from error

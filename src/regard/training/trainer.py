"""The training loop: steps, validation, checkpoints, and resuming an interrupted run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from regard.config import TrainConfig
from regard.data.batch_sampler import Loader, Position
from regard.data.packing import PackedLoader
from regard.errors import Diverged, TrainingError
from regard.messages import counted
from regard.models.base import Model
from regard.nn.device import describe_machine, pick_precision
from regard.run.checkpoint import load_weights, model_weights
from regard.run.folder import RunFolder
from regard.training.adapters import choose_parameters
from regard.training.checkpointing import Checkpointing
from regard.training.cuda_graph import CudaGraphStep
from regard.training.data_parallel import DistributedModel
from regard.training.events import Listener, Noted, Started, Validated, Validation
from regard.training.loss_scale import LossScale
from regard.training.memory_check import out_of_memory
from regard.training.prefetch import prefetch
from regard.training.schedules import Schedule, Scheduler, learning_rate
from regard.training.step import training_step
from regard.training.step_stats import Counters, StepStats
from regard.training.training_state import TrainingState
from regard.training.watchdog import Watchdog
from regard.training.world import ALONE, World

Validate = Callable[[Model], Validation]
Batches = Generator[tuple[Any, Position], None, None]
AnyLoader = Loader | PackedLoader


class Trainer:
    """Trains a model, and writes checkpoints into a run folder. A folder with checkpoints is resumed.

        from regard.config import TrainConfig
        from regard.data.batch import ADDED, collate_pairs
        from regard.data.columns import pair_columns

        columns = pair_columns(regard.Column.from_lists(source_ids), regard.Column.from_lists(target_ids))
        loader = regard.Loader(lambda epoch: columns, collate_pairs, added=ADDED, budget=4096, max_length=100, seed=1)
        model = regard.Transformer(source_size=8000, target_size=8000, width=256)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=1000)
        config = TrainConfig(steps=1000, checkpoint_every=500, clip_norm=1.0)
        regard.Trainer(model, loader, config, "runs/mine", optimizer=optimizer, scheduler=scheduler, listen=print).fit()

    `optimizer` is any optimizer of PyTorch whose `step` needs no closure; without it, the one that `config` describes.
    `scheduler` is one of PyTorch, which advances after each step (`ReduceLROnPlateau`: after each validation), or a function
    from the number of a step, counted from 1, to its learning rate. Without it, the rate of a given optimizer stays
    constant, and otherwise follows `config`. Gradients are clipped to `config.clip_norm`, and a step with a gradient that is
    not finite is skipped.

    `loader` may be a mapping, {0: first, 1000: second}: the loaders of stages, by the number of steps that are taken before
    each of them begins. A stage begins with a new epoch.

    `validate` scores the model on a dev set; `config.metric` names the score that decides, and `higher_is_better` tells how
    to compare it. `listen` gets all events (`training.events`). `stop` is called after every step; True stops training. One
    process at a time may train into a folder. `new` names parameters without trained values, which `config.adapt` does not
    keep from being trained. When training has ended, the final weights are in `final/weights.safetensors`,
    by the names of `model.named_parameters()`.
    """

    def __init__(
        self,
        model: Model,
        loader: AnyLoader | Mapping[int, AnyLoader],
        config: TrainConfig,
        run: RunFolder | Path | str,
        *,
        optimizer: Optimizer | None = None,
        scheduler: Scheduler | None = None,
        world: World = ALONE,
        validate: Validate | None = None,
        higher_is_better: bool = False,
        listen: Listener = lambda event: None,
        stop: Callable[[], bool] = lambda: False,
        new: Collection[str] = (),
    ) -> None:
        self.model, self.config = model, config
        # The batches of each stage, by the number of steps before it, and those of the current one.
        self.loaders: Mapping[int, AnyLoader] = loader if isinstance(loader, Mapping) else {0: loader}
        self.loader = self.loaders[0]
        self.run = run if isinstance(run, RunFolder) else RunFolder(run)
        self.world, self.validate, self.listen, self.stop = world, validate, listen, stop
        self.sign = 1 if higher_is_better else -1  # of `train.metric`
        self.final_warnings: tuple[str, ...] = ()  # of the last validation
        self.device = next(model.parameters()).device
        self.precision = pick_precision(config.precision, self.device)
        adapters = choose_parameters(model, config, new=new)
        distributed = DistributedModel(
            model,
            smoothing=config.label_smoothing,
            world=world,
            parallel=config.parallel,
            adapters=adapters,
            loss_scale=LossScale(self.device) if self.precision == torch.float16 else None,
        )
        self.state = TrainingState(distributed, config, optimizer=optimizer, scheduler=scheduler)
        if optimizer is None and scheduler is None:
            scheduler = learning_rate(config, width=model.width)
        self.schedule = Schedule(self.state.optimizer, scheduler)
        self.stats = StepStats(self.run, config, writes=world.writes, listen=listen)
        self.checkpoints = Checkpointing(self.run, self.state, config, stats=self.stats, world=world, listen=listen)
        stalled = "stalled.txt" if world.writes else f"stalled-{world.rank}.txt"
        self.watchdog = Watchdog(self.run.folder, stalled, seconds=config.stall_seconds)

    @property
    def counters(self) -> Counters:
        """How far the run is."""
        return self.state.counters

    def fit(self) -> bool:
        """Train to the end, or until asked to stop. Return whether the run is finished."""
        if self.world.writes:
            self.run.folder.make()
        self.world.wait()
        try:
            with self.watchdog:
                return self._fit()
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            step = self.counters.step + 1
            raise TrainingError(
                f"memory ran out at step {step}; start a new run (--out) with a smaller train.tokens "
                "(the last checkpoint of this run is kept)"
            ) from error
        finally:
            # Whatever ends training, a checkpoint that is being written is completed first.
            self.checkpoints.wait()

    def _fit(self) -> bool:
        self.checkpoints.resume()
        config, counters = self.config, self.counters
        size, machine = self.model.num_parameters(), describe_machine(self.device)
        trained = sum(one.numel() for one in self.state.distributed.trained_parameters().values())
        if trained != size:
            self.listen(Noted(counters.step, f"{trained:,} parameters are trained; the model has {size:,}"))
        self.listen(Started(counters.step, config.steps, size, self._setup(), counters.seconds, machine))
        self.stats.begin()
        finished = False
        while not finished:
            begin = max(begin for begin in self.loaders if begin <= counters.step)
            later = [other for other in self.loaders if other > counters.step]
            self.loader = self.loaders[begin]
            batches, step = self._batches_and_step(self._position(begin))
            with closing(batches):
                if not self._take_steps(batches, step, upto=min([config.steps, *later])):
                    return False
            finished = counters.step >= config.steps or self._out_of_patience()
        self._finish()
        return True

    def _take_steps(self, batches: Batches, step: Callable[..., Tensor], *, upto: int) -> bool:
        """Take the steps up to the end of a stage, or stop when asked to. Return whether all were taken."""
        config, counters = self.config, self.counters
        # Reading results makes a GPU wait.
        read_every = config.log_every if self.device.type == "cuda" else 1
        before, started = counters.seconds, time.monotonic()
        while counters.step < upto and not self._out_of_patience():
            if (counters.step % read_every == 0 or self.world.size == 1) and self.world.any(self.stop()):
                self.checkpoints.save()
                return False
            micro_batches = list(islice(batches, config.accumulate))
            taken = [batch for batch, _ in micro_batches]
            self.model.train()
            self.model.noise.seed(config.seed, counters.step, rank=self.world.rank)
            self.stats.add(step(taken, rate=self.schedule.before_step(counters.step + 1)), taken)
            self.schedule.after_step()
            counters.step += 1
            self.watchdog.step()
            position = micro_batches[-1][1]
            counters.epoch, counters.block, counters.batch = position.epoch, position.block, position.batch
            counters.seconds = before + time.monotonic() - started
            self.state.after_step()
            if len(self.stats.unread) >= read_every:
                self.stats.read(counters)
            # The first step too, so that a log soon says that training works.
            if counters.step % config.log_every == 0 or counters.step in (1, config.steps):
                self.stats.read(counters)
                self.stats.report(counters, rate=self.schedule.last)
            while self.loader.notices:
                self.listen(Noted(counters.step, self.loader.notices.popleft()))
            self.checkpoints.poll()
            paused = time.monotonic()
            self._validate_and_save()
            self.stats.pause(time.monotonic() - paused)
        return True

    def _position(self, begin: int) -> Position:
        """Return where the data of a stage resumes.

        It is at the next epoch if the stage begins with this step, or if this machine makes other batches than the last one.
        A checkpoint of the step before has the position in the stage before, so a resumed run begins the same epoch.
        """
        counters, kind = self.counters, type(self.loader).__name__
        position = Position(counters.epoch, counters.block, counters.batch)
        if 0 < begin == counters.step:
            position = Position(counters.epoch + 1)
        elif counters.batching not in ("", kind):
            text = (
                "batches are built differently than before the interruption, so training continues at the start of the "
                "next epoch"
            )
            self.listen(Noted(counters.step, text))
            position = Position(counters.epoch + 1)
        counters.batching = kind
        return position

    def _batches_and_step(self, position: Position) -> tuple[Batches, Callable[..., Tensor]]:
        """Return the batches from a position on, and the function that takes a step with them."""
        distributed, optimizer = self.state.distributed, self.state.optimizer
        config, loader, world = self.config, self.loader, self.world
        if isinstance(loader, Loader):
            return loader.batches(position, rank=world.rank, ranks=world.size), partial(
                training_step, distributed, optimizer, config=config, precision=self.precision
            )

        def note(text: str) -> None:
            self.listen(Noted(self.counters.step, text))

        # PyTorch's schedulers may change other options than the learning rate.
        capture = not isinstance(self.schedule.scheduler, LRScheduler)
        step = CudaGraphStep(distributed, optimizer, config, precision=self.precision, note=note, capture=capture)
        return prefetch(loader, position, world), step

    def _setup(self) -> str:
        """Return device, precision and processes in one line."""
        dtype = str(self.precision).removeprefix("torch.")
        parallel = "shards" if self.state.distributed.sharded else "copies"
        processes = [f"{self.world.size} processes with {parallel} of the model"] if self.world.size > 1 else []
        if self.device.type == "cpu":
            return ", ".join(["cpu", counted(torch.get_num_threads(), "thread"), dtype, *processes])
        packed = "packed batches, our kernels" if isinstance(self.loader, PackedLoader) else "batches of similar length"
        return ", ".join([self.device.type, dtype, packed, *processes])

    def _validate_and_save(self) -> None:
        """Validate and write a checkpoint, each when it is due; validation first, so that the best step is known."""
        config, step = self.config, self.counters.step
        last = step == config.steps
        if self.validate and (last or step % (config.validate_every or config.checkpoint_every) == 0):
            self._validate()
        if last or step % config.checkpoint_every == 0:
            self.checkpoints.save()

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
            result = self.validate(self.model)
        if average is not None:
            load_weights(self.model, trained, origin="the trained weights")
        score = result.metrics[config.metric]
        self.schedule.after_validation(score)
        best = math.isfinite(score) and (counters.best is None or self.sign * score > self.sign * counters.best)
        if best:
            counters.best, counters.best_step, counters.without_better = score, counters.step, 0
        else:
            counters.without_better += 1
        self.listen(Validated(counters.step, result.metrics, result.examples, best, result.details))
        self.final_warnings = result.final_warnings
        for warning in result.warnings:
            self.listen(Noted(counters.step, warning))
        if best and counters.step % config.checkpoint_every and config.final == "best":
            # After the report, so that the log of a resumed run contains it.
            self.checkpoints.save()

    def _out_of_patience(self) -> bool:
        return 0 < self.config.patience <= self.counters.without_better

    def _finish(self) -> None:
        """Write the final weights, which ends the run."""
        config, counters = self.config, self.counters
        if self._out_of_patience():
            self.checkpoints.save()
            text = f"no better {config.metric} for {counted(config.patience, 'validation')}; stopping"
            self.listen(Noted(counters.step, text))
        for warning in self.final_warnings:
            self.listen(Noted(counters.step, warning))
        self.checkpoints.wait()
        if 2 * counters.skipped > counters.step:
            raise Diverged(
                f"{counters.skipped:,} of {counted(counters.step, 'step')} had a gradient that is not finite; "
                "begin a new run (--out) with a lower train.lr, or with train.clip_norm=1"
            )
        self.checkpoints.write_final()

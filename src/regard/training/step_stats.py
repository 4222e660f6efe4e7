"""What a run has counted so far, and the results of its steps: read from the device, checked, and averaged for reports."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from torch import Tensor

from regard.config import TrainConfig
from regard.errors import Diverged
from regard.messages import counted
from regard.run.folder import RunFolder
from regard.training.events import Listener, Noted, Progress
from regard.training.step import read

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


@dataclass
class Counters:
    """How far a run is. A checkpoint holds these as JSON."""

    step: Count = 0
    epoch: Count = 0
    block: Count = 0
    batch: Count = 0
    batching: str = ""  # the kind of loader that epoch, block and batch are a position of
    seconds: float = 0.0
    best: float | None = None
    best_step: int | None = None
    without_better: Count = 0  # validations since the best one
    bad_steps: Count = 0  # skipped in a row, up to now
    skipped: Count = 0  # in total


class StepStats:
    """The results of a run's steps. Counts the steps that were skipped; too many in a row end training."""

    def __init__(self, run: RunFolder, config: TrainConfig, *, writes: bool, listen: Listener) -> None:
        self.run, self.config, self.writes, self.listen = run, config, writes, listen
        self.unread: list[tuple[Tensor, list[Any]]] = []  # results that are still on the device, and their batches
        self.norm = 0.0  # of the last gradient
        self.begin()

    def begin(self) -> None:
        """Start new sums."""
        self.loss, self.tokens, self.started = 0.0, 0, time.monotonic()

    def add(self, result: Tensor, batches: list[Any]) -> None:
        """Add the result of a step, without reading it."""
        self.unread.append((result, batches))

    def pause(self, seconds: float) -> None:
        """Leave a pause out of the time that the sums cover."""
        self.started += seconds

    def read(self, counters: Counters) -> None:
        """Read the results of the last steps, and count those that were skipped."""
        if not self.unread:
            return
        unread, self.unread = self.unread, []
        results = read([result for result, _ in unread])
        for step, (result, (_, batches)) in enumerate(
            zip(results, unread, strict=True), counters.step - len(results) + 1
        ):
            self.norm = result.gradient_norm
            if result.finite:
                self.loss, self.tokens, counters.bad_steps = self.loss + result.loss, self.tokens + result.tokens, 0
            elif result.overflowed:
                halved = f"the loss scale falls to {result.loss_scale / 2:,.0f}"
                self.listen(Noted(step, f"a gradient overflowed in float16; this step was skipped, and {halved}"))
            else:
                self._count_skipped(step, batches, counters)

    def _count_skipped(self, step: int, batches: list[Any], counters: Counters) -> None:
        counters.bad_steps += 1
        counters.skipped += 1
        self.listen(Noted(step, "the gradient is not finite; this step was skipped"))
        if counters.bad_steps >= self.config.max_bad_steps:
            where = self.run.write_batch(step, batches) if self.writes else "the run's folder"
            raise Diverged(
                f"{counted(counters.bad_steps, 'step')} in a row had a gradient that is not finite; "
                f"the last checkpoint is kept: look at the batch in {where}, "
                "or begin a new run (--out) with a lower train.lr or train.clip_norm=1"
            )

    def report(self, counters: Counters, *, rate: float) -> None:
        """Report the means since the last report."""
        if not self.tokens:
            return
        elapsed = max(time.monotonic() - self.started, 1e-9)
        self.listen(
            Progress(
                step=counters.step,
                steps=self.config.steps,
                epoch=counters.epoch,
                loss=self.loss / self.tokens,
                rate=rate,
                gradient_norm=self.norm,
                tokens_per_second=self.tokens / elapsed,
                seconds=counters.seconds,
            )
        )
        self.begin()

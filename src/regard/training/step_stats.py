"""What steps cost: read from the device a few at a time, judged, and summed up until they are reported."""

from __future__ import annotations

import time
from typing import Any

from torch import Tensor

from regard.config import TrainConfig
from regard.errors import TrainingError
from regard.run.folder import RunFolder
from regard.training.counters import Counters
from regard.training.events import Listener, Noted, Progress
from regard.training.step import read


class StepStats:
    """The costs of a run's steps. Those that could not change the weights are counted; too many in a row end training."""

    def __init__(self, run: RunFolder, config: TrainConfig, *, writes: bool, listen: Listener) -> None:
        self.run, self.config, self.writes, self.listen = run, config, writes, listen
        self.unread: list[tuple[Tensor, list[Any]]] = []  # numbers that are still on the device, and their batches
        self.norm = 0.0  # of the last gradient
        self.begin()

    def begin(self) -> None:
        """Sums from here on."""
        self.loss, self.tokens, self.started = 0.0, 0, time.monotonic()

    def read(self, counters: Counters) -> None:
        """Learns what the last steps cost, and which of them had to be left out."""
        if not self.unread:
            return
        unread, self.unread = self.unread, []
        costs = read([numbers for numbers, _ in unread])
        for step, (cost, (_, batches)) in enumerate(zip(costs, unread, strict=True), counters.step - len(costs) + 1):
            self.norm = cost.gradient_norm
            if cost.finite:
                self.loss, self.tokens, counters.bad_steps = self.loss + cost.loss, self.tokens + cost.tokens, 0
            else:
                self._left_out(step, batches, counters)

    def _left_out(self, step: int, batches: list[Any], counters: Counters) -> None:
        counters.bad_steps += 1
        counters.skipped += 1
        self.listen(Noted(step, "the gradient is not finite; this step was left out"))
        if counters.bad_steps >= self.config.max_bad_steps:
            where = self.run.write_batch(step, batches) if self.writes else "the run's folder"
            raise TrainingError(
                f"{counters.bad_steps} steps in a row had a gradient that is not finite; the last checkpoint is kept: "
                f"look at the batch in {where}, or begin a new run (--out) with a lower train.lr or train.clip_norm=1"
            )

    def report(self, counters: Counters, *, rate: float) -> None:
        """Tells the means since the last report."""
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

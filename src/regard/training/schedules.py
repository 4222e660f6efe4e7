"""Learning rates: the schedules of recipes, pure functions of the step (counted from 1), and schedulers of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from regard.config import TrainConfig
from regard.errors import ConfigError

Scheduler = LRScheduler | Callable[[int], float]


def noam(step: int, *, width: int, warmup: int) -> float:
    """Return d_model^-0.5 · min(step^-0.5, step · warmup^-1.5) (section 5.3)."""
    return float(width**-0.5 * min(step**-0.5, step * max(warmup, 1) ** -1.5))


def inverse_sqrt(step: int, *, peak: float, warmup: int) -> float:
    """Rise linearly to the peak, then fall with the square root of the step."""
    warmup = max(warmup, 1)
    return peak * min(step / warmup, math.sqrt(warmup / step))


def cosine(step: int, *, peak: float, warmup: int, steps: int) -> float:
    """Rise linearly to the peak, then follow half a cosine down to zero, reached after the last step."""
    if step < warmup:
        return peak * step / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup + 1, 1)))


def warmup_stable_decay(step: int, *, peak: float, warmup: int, steps: int, decay: float) -> float:
    """Rise linearly to the peak, stay there, and fall linearly to zero over the last `decay` of all steps."""
    falling = max(1, round(steps * decay))
    return peak * min(1.0, step / max(warmup, 1), (steps + 1 - step) / falling)


def learning_rate(config: TrainConfig, *, width: int) -> Callable[[int], float]:
    """Return the recipe's schedule as a function of the step."""
    if config.schedule == "noam":
        factor = 1.0 if config.lr is None else config.lr
        return lambda step: factor * noam(step, width=width, warmup=config.warmup_steps)
    if config.lr is None:
        raise ConfigError(
            f"train.schedule is {config.schedule!r}, which needs a peak: set train.lr, as in train.lr=1e-3"
        )
    peak, warmup, steps = config.lr, config.warmup_steps, config.steps
    if config.schedule == "inverse-sqrt":
        return lambda step: inverse_sqrt(step, peak=peak, warmup=warmup)
    if config.schedule == "cosine":
        return lambda step: cosine(step, peak=peak, warmup=warmup, steps=steps)
    return lambda step: warmup_stable_decay(step, peak=peak, warmup=warmup, steps=steps, decay=config.decay)


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of all parameter groups."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


class Schedule:
    """The learning rate of each step: from a function, from a scheduler of PyTorch, or constant as the optimizer has it."""

    def __init__(self, optimizer: Optimizer, scheduler: Scheduler | None) -> None:
        if isinstance(scheduler, LRScheduler) and scheduler.optimizer is not optimizer:
            raise ConfigError("the scheduler belongs to another optimizer; give Trainer the optimizer it was made with")
        self.optimizer, self.scheduler = optimizer, scheduler
        self._last: float | Tensor = 0.0

    def before_step(self, step: int) -> float | None:
        """Return the learning rate to set for a step, or None if the optimizer has it already."""
        if self.scheduler is None or isinstance(self.scheduler, LRScheduler):
            rate = self.optimizer.param_groups[0]["lr"]
            self._last = rate.clone() if isinstance(rate, Tensor) else rate
            return None
        self._last = self.scheduler(step)
        return self._last

    def after_step(self) -> None:
        """Advance the scheduler, also when the step was skipped: a rate belongs to the number of a step."""
        if isinstance(self.scheduler, LRScheduler) and not isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step()

    def after_validation(self, score: float) -> None:
        """Advance a scheduler that follows the validation metric."""
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(score)

    @property
    def last(self) -> float:
        """The learning rate of the last step, of the first parameter group."""
        return float(self._last)

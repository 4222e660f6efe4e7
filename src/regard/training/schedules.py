"""Learning rates: pure functions of the step, counted from 1."""

from __future__ import annotations

import math
from collections.abc import Callable

from regard.config import TrainConfig
from regard.errors import ConfigError


def noam(step: int, *, width: int, warmup: int) -> float:
    """d_model^-0.5 · min(step^-0.5, step · warmup^-1.5) (section 5.3)."""
    return float(width**-0.5 * min(step**-0.5, step * max(warmup, 1) ** -1.5))


def inverse_sqrt(step: int, *, peak: float, warmup: int) -> float:
    """A line up to the peak, then the peak times sqrt(warmup / step)."""
    warmup = max(warmup, 1)
    return peak * min(step / warmup, math.sqrt(warmup / step))


def cosine(step: int, *, peak: float, warmup: int, steps: int) -> float:
    """A line up to the peak, then half a cosine down to zero after the last step."""
    if step < warmup:
        return peak * step / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup + 1, 1)))


def warmup_stable_decay(step: int, *, peak: float, warmup: int, steps: int, decay: float) -> float:
    """A line up to the peak, the peak, and over the last `decay` of all steps a line down to zero after the last one."""
    falling = max(1, round(steps * decay))
    return peak * min(1.0, step / max(warmup, 1), (steps + 1 - step) / falling)


def learning_rate(config: TrainConfig, *, width: int) -> Callable[[int], float]:
    """The recipe's schedule as a function of the step."""
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

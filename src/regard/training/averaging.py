"""Averages of weights, and the weights that a run ends with: the last, the best, or a mean of checkpoints (section 6.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from regard.config import TrainConfig
from regard.run.checkpoint import Shapes
from regard.run.folder import RunFolder
from regard.training.saver import regular_steps


class MovingAverage:
    """average ← decay · average + (1 - decay) · weights, with a smaller decay at first so that the start is forgotten."""

    def __init__(self, weights: Mapping[str, Tensor], *, decay: float) -> None:
        self.decay = decay
        self.average = {name: weight.detach().clone() for name, weight in weights.items()}

    @torch.no_grad()
    def update(self, weights: Mapping[str, Tensor], *, step: int) -> None:
        """Add the weights after a step."""
        decay = min(self.decay, (1 + step) / (10 + step))
        averages = list(self.average.values())
        torch._foreach_lerp_(averages, [weights[name].detach() for name in self.average], 1 - decay)


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

"""Means of weights: a moving one during training, and one over the last checkpoints after it (section 6.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


class MovingAverage:
    """average ← decay · average + (1 - decay) · weights, with a faster decay at first so that the start is forgotten."""

    def __init__(self, weights: Mapping[str, Tensor], *, decay: float) -> None:
        self.decay = decay
        self.average = {name: weight.detach().clone() for name, weight in weights.items()}

    @torch.no_grad()
    def update(self, weights: Mapping[str, Tensor], *, step: int) -> None:
        """Takes in the weights after a step."""
        decay = min(self.decay, (1 + step) / (10 + step))
        averages = list(self.average.values())
        torch._foreach_lerp_(averages, [weights[name].detach() for name in self.average], 1 - decay)


def mean_weights(checkpoints: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several checkpoints, held one at a time."""
    total: dict[str, Tensor] = {}
    count = 0
    for weights in checkpoints:
        count += 1
        for name, weight in weights.items():
            total[name] = total[name] + weight.double() if name in total else weight.double()
    assert count, "no checkpoints to average"
    return {name: (sums / count).float() for name, sums in total.items()}

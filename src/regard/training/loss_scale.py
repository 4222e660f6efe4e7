"""The loss scale of float16 training (Micikevicius et al. 2018): keeps gradients above the smallest number of float16.

The loss is multiplied by the scale before the backward pass, and gradients are divided by it after. If a gradient overflows,
the step is skipped and the scale is halved; after many good steps in a row it is doubled. Everything stays on the device, so
that a CUDA graph can capture it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from regard.errors import CheckpointError

FIRST, SMALLEST, LARGEST = 2.0**16, 1.0, 2.0**24  # powers of two, so that scaling rounds nothing
GOOD_STEPS = 2000  # in a row, until the scale is doubled
PREFIX = "loss_scale/"  # of the names in a checkpoint


class LossScale:
    """The scale, and the number of good steps since it changed."""

    def __init__(self, device: torch.device, *, first: float = FIRST, good_steps: int = GOOD_STEPS) -> None:
        self.limit = good_steps
        self.scale = torch.tensor(first, device=device)
        self.good_steps = torch.zeros((), device=device)

    @torch.no_grad()
    def update(self, finite: Tensor) -> None:
        """Take note of a step: whether all its gradients were finite."""
        count = self.good_steps + 1
        grows = finite & (count >= self.limit)
        factor = torch.where(finite, torch.where(grows, 2.0, 1.0), 0.5)
        self.scale.mul_(factor).clamp_(SMALLEST, LARGEST)
        self.good_steps.copy_(torch.where(finite & ~grows, count, 0.0))

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint holds."""
        return {f"{PREFIX}scale": self.scale, f"{PREFIX}good_steps": self.good_steps}

    def restore(self, training: Mapping[str, Tensor], *, origin: str) -> None:
        """Copy what `state` returned. A run that was trained in another precision before has none, and begins anew."""
        for name, tensor in self.state().items():
            if name not in training:
                continue
            if training[name].shape != tensor.shape or not training[name].ge(0).all():
                raise CheckpointError(f"{origin} cannot be used: {name!r} is not one number of at least 0")
            tensor.copy_(training[name])

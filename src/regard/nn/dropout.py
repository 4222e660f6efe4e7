"""Dropout whose randomness is handed in: on a CPU the masks are a function of (seed, step), nothing else.

PyTorch draws its CPU masks one Bernoulli at a time; here they are bytes of a fast generator, compared with a threshold.
A rate is therefore rounded to a multiple of 1/256, and what is kept is scaled by the rounded rate, so means stay exact.
On a GPU PyTorch's own dropout is used, with the device's generator.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import ConfigError


class Noise:
    """A source of random bytes, set anew for each training step."""

    def __init__(self) -> None:
        self.seed(0, 0)

    def seed(self, seed: int, step: int) -> None:
        """Begins the noise of one step."""
        self._bytes = np.random.SFC64(np.random.SeedSequence((seed, step)))

    def mask(self, shape: torch.Size, dropped: int) -> Tensor:
        """Zero for `dropped` in 256 entries, 256 / (256 - dropped) for the rest."""
        count = math.prod(shape)
        noise = self._bytes.random_raw(-(-count // 8)).view(np.uint8)[:count]
        kept = torch.from_numpy(np.greater_equal(noise, dropped).view(np.uint8)).to(
            torch.float32
        )  # bool converts slowly
        return kept.mul_(256 / (256 - dropped)).view(shape)


class Dropout(nn.Module):
    """Zeroes a share of its input in training and scales up the rest."""

    def __init__(self, rate: float, noise: Noise) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ConfigError(f"a dropout rate is {rate}; it must be at least 0 and below 1")
        self.rate = rate
        self.dropped = min(max(round(rate * 256), 1), 255) if rate else 0
        self.noise = noise

    @property
    def active(self) -> bool:
        return self.training and self.dropped > 0

    def forward(self, x: Tensor) -> Tensor:
        if not self.active:
            return x
        if x.is_cuda:
            return F.dropout(x, self.rate)
        return x * self.noise.mask(x.shape, self.dropped)

    def add(self, x: Tensor, branch: Tensor) -> Tensor:
        """x + dropout(branch), in one pass."""
        if not self.active or x.is_cuda:
            return x + self(branch)
        return torch.addcmul(x, branch, self.noise.mask(branch.shape, self.dropped))

    def extra_repr(self) -> str:
        return f"rate={self.rate}"

"""Dropout whose randomness is handed in: the masks are a function of (seed, step), nothing else.

PyTorch draws its CPU masks one Bernoulli at a time; here they are bytes of a fast generator, compared with a threshold.
A rate is therefore rounded to a multiple of 1/256, and what is kept is scaled by the rounded rate, so means stay exact.
On a GPU our kernels compute them; where those cannot run, PyTorch's own dropout is used, with the device's generator.
"""

from __future__ import annotations

import math
from threading import get_ident

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import kernels
from regard.data.shuffle import shift_right, splitmix64
from regard.errors import ConfigError
from regard.kernels import Drop

_ODD = 0x9E3779B97F4A7C15 - 2**64


def hashed(count: int, seed: Tensor, site: int) -> Tensor:
    """Numbers from 0 to below 1 that follow from a seed on a device and a number: SplitMix64 (Steele et al. 2014)."""
    bits = torch.arange(count, device=seed.device) * _ODD + (seed.long() * 2**32 + site * 2**16)
    return shift_right(splitmix64(bits), 11).double() * 2.0**-53


class Noise:
    """A source of random bytes, set anew for each training step, and of the seeds from which kernels make their own."""

    def __init__(self) -> None:
        self._on_device: Tensor | None = None
        self.seed(0, 0)

    def seed(self, seed: int, step: int, *, rank: int = 0) -> None:
        """Begins the noise of one step; kernels of another process get another one."""
        self._step = (seed, step)
        self._streams: dict[int, np.random.SFC64] = {}  # of bytes, one a thread
        self._key = int(np.random.SeedSequence((*self._step, rank) if rank else self._step).generate_state(1)[0]) >> 1
        self._sites = 0
        if self._on_device is not None:
            self._on_device.fill_(self._key)

    def part(self, number: int) -> None:
        """Begins the noise of one micro-batch, by its number among all of the step; for kernels it just goes on.

        Threads that compute several at a time each begin their own.
        """
        if number:
            self._streams[get_ident()] = np.random.SFC64(np.random.SeedSequence((*self._step, number)))

    @property
    def _bytes(self) -> np.random.SFC64:
        if (thread := get_ident()) not in self._streams:
            self._streams[thread] = np.random.SFC64(np.random.SeedSequence(self._step))
        return self._streams[thread]

    def rewind(self) -> None:
        """Begins the noise for kernels of this step again."""
        self._sites = 0

    def draw(self, rate: float, device: torch.device) -> Drop:
        """The next dropout of this step, for a kernel."""
        if self._on_device is None or self._on_device.device != device:
            self._on_device = torch.tensor([self._key], dtype=torch.int32, device=device)
        self._sites += 1
        return Drop(self._on_device, self._sites, rate)

    def uniform(self, count: int, device: torch.device) -> Tensor:
        """Numbers from 0 to below 1, for what else is drawn in a step; on a GPU they are made there, step by step anew."""
        if device.type == "cpu":
            return torch.from_numpy((self._bytes.random_raw(count) >> np.uint64(11)) * 2.0**-53)
        drop = self.draw(0.0, device)
        return hashed(count, drop.seed, drop.site)

    def mask(self, shape: torch.Size, dropped: int) -> Tensor:
        """Zero for `dropped` in 256 entries, 256 / (256 - dropped) for the rest."""
        count = math.prod(shape)
        noise = self._bytes.random_raw(-(-count // 8)).view(np.uint8)[:count]
        kept = torch.from_numpy(np.greater_equal(noise, dropped).view(np.uint8)).to(
            torch.float32
        )  # bool converts slowly
        return kept.mul_(256 / (256 - dropped)).view(shape)


class GlobalNoise:
    """Noise from PyTorch's global generators, for modules used on their own: `torch.manual_seed` determines it."""

    def draw(self, rate: float, device: torch.device) -> Drop:
        """Return a dropout with a new seed, for a kernel."""
        return Drop(torch.randint(2**31 - 1, (1,), dtype=torch.int32, device=device), 0, rate)

    def mask(self, shape: torch.Size, dropped: int) -> Tensor:
        """Return a mask as `Noise.mask` does."""
        kept = torch.randint(256, shape, dtype=torch.uint8) >= dropped
        return kept.to(torch.float32).mul_(256 / (256 - dropped))


class Dropout(nn.Module):
    """Zero a share of the input in training and scale the rest up.

    Without `noise`, the randomness comes from PyTorch's global generators.
    """

    def __init__(self, rate: float, noise: Noise | None = None) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ConfigError(f"a dropout rate is {rate}; it must be at least 0 and below 1")
        self.rate = rate
        self.dropped = min(max(round(rate * 256), 1), 255) if rate else 0
        self.noise = GlobalNoise() if noise is None else noise

    @property
    def active(self) -> bool:
        return self.training and self.dropped > 0

    def forward(self, x: Tensor) -> Tensor:
        if not self.active:
            return x
        if kernels.usable(x):
            return self._fused(None, x)
        if x.is_cuda:
            return F.dropout(x, self.rate)
        return x * self.noise.mask(x.shape, self.dropped)

    def add(self, x: Tensor, branch: Tensor) -> Tensor:
        """x + dropout(branch), in one pass."""
        if not self.active:
            return x + branch
        if kernels.usable(x):
            return self._fused(x, branch)
        if x.is_cuda:
            return x + self(branch)
        return torch.addcmul(x, branch, self.noise.mask(branch.shape, self.dropped))

    def draw(self, device: torch.device) -> Drop:
        """This dropout, for a kernel that applies it itself."""
        return self.noise.draw(self.rate, device)

    def _fused(self, x: Tensor | None, branch: Tensor) -> Tensor:
        from regard.kernels.residual import add_dropout

        return add_dropout(x, branch, self.draw(branch.device))

    def extra_repr(self) -> str:
        return f"rate={self.rate}"

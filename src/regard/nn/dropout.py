"""Dropout from an explicit source of randomness: in a model, masks are a function of (seed, step) only.

On a CPU, PyTorch draws one Bernoulli number per entry. Here masks are bytes of a fast generator, compared with a threshold.
A rate is therefore rounded to a multiple of 1/256; the entries kept are scaled by the rounded rate, so means stay exact.
On a GPU our kernels compute the masks. Where kernels cannot run, PyTorch's own dropout and generator are used.
"""

from __future__ import annotations

import math
from threading import get_ident

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import kernels
from regard.data.shuffle import splitmix64, unsigned_shift
from regard.errors import ConfigError
from regard.kernels import Drop

_ODD = 0x9E3779B97F4A7C15 - 2**64


def hashed(count: int, seed: Tensor, site: int) -> Tensor:
    """Return numbers in [0, 1), made of a seed on a device and a number of a site by SplitMix64 (Steele et al. 2014)."""
    bits = torch.arange(count, device=seed.device) * _ODD + (seed.long() * 2**32 + site * 2**16)
    return unsigned_shift(splitmix64(bits), 11).double() * 2.0**-53


class Noise:
    """The noise of all dropout in a model: random bytes for the CPU, and seeds for kernels. Seed it before each step."""

    def __init__(self) -> None:
        self._on_device: Tensor | None = None
        self.seed(0, 0)

    def seed(self, seed: int, step: int, *, rank: int = 0) -> None:
        """Start the noise of one step. Kernels of another process (`rank`) get different noise."""
        self._step = (seed, step)
        self._streams: dict[int, np.random.SFC64] = {}  # of bytes, one per thread
        self._key = int(np.random.SeedSequence((*self._step, rank) if rank else self._step).generate_state(1)[0]) >> 1
        self._sites = 0
        if self._on_device is not None:
            self._on_device.fill_(self._key)

    def part(self, number: int) -> None:
        """Start the noise of one micro-batch, by its number in the step. The seeds of kernels are not affected.

        Threads that compute micro-batches at the same time each start their own.
        """
        if number:
            self._streams[get_ident()] = np.random.SFC64(np.random.SeedSequence((*self._step, number)))

    @property
    def _bytes(self) -> np.random.SFC64:
        if (thread := get_ident()) not in self._streams:
            self._streams[thread] = np.random.SFC64(np.random.SeedSequence(self._step))
        return self._streams[thread]

    def rewind(self) -> None:
        """Restart the seeds for kernels of this step."""
        self._sites = 0

    def draw(self, rate: float, device: torch.device) -> Drop:
        """Return the next dropout of this step, for a kernel."""
        if self._on_device is None or self._on_device.device != device:
            self._on_device = torch.tensor([self._key], dtype=torch.int32, device=device)
        self._sites += 1
        return Drop(self._on_device, self._sites, rate)

    def uniform(self, count: int, device: torch.device) -> Tensor:
        """Return numbers in [0, 1), for other random choices of a step. On a GPU they are computed there."""
        if device.type == "cpu":
            return torch.from_numpy((self._bytes.random_raw(count) >> np.uint64(11)) * 2.0**-53)
        drop = self.draw(0.0, device)
        return hashed(count, drop.seed, drop.site)

    def mask(self, shape: torch.Size, dropped: int) -> Tensor:
        """Return a mask with zero for `dropped` in 256 entries, and 256 / (256 - dropped) for the rest."""
        count = math.prod(shape)
        noise = self._bytes.random_raw(-(-count // 8)).view(np.uint8)[:count]
        # Converting uint8 to float32 is faster than converting bool.
        kept = torch.from_numpy(np.greater_equal(noise, dropped).view(np.uint8)).to(torch.float32)
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
        """Whether anything is dropped: in training, at a rate above zero."""
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
        """Return x + dropout(branch), in one pass."""
        if not self.active:
            return x + branch
        if kernels.usable(x):
            return self._fused(x, branch)
        if x.is_cuda:
            return x + self(branch)
        return torch.addcmul(x, branch, self.noise.mask(branch.shape, self.dropped))

    def draw(self, device: torch.device) -> Drop:
        """Return this dropout, for a kernel that applies it itself."""
        return self.noise.draw(self.rate, device)

    def _fused(self, x: Tensor | None, branch: Tensor) -> Tensor:
        from regard.kernels.residual import add_dropout

        return add_dropout(x, branch, self.draw(branch.device))

    def extra_repr(self) -> str:
        return f"rate={self.rate}"

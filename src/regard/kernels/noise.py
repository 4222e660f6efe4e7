"""Random bits for dropout without a generator: a hash of (seed of the step, number of the dropout, number of the entry).

The backward pass computes the same bits again instead of storing them, and a resumed run draws the same ones.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.drop import Drop

BITS = 24  # a rate is rounded to a multiple of 2^-24


@triton.jit
def mix(h):
    """A permutation of 32-bit numbers without visible pattern (constants found by Wellons' search for low bias)."""
    h ^= h >> 16
    h *= 0x7FEB352D
    h ^= h >> 15
    h *= 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
def kept(entry, seed, site, threshold):
    """True for the entries that dropout number `site` keeps."""
    key = mix(seed.to(tl.uint32) + site.to(tl.uint32) * 0x9E3779B9)
    bits = mix((entry.to(tl.uint32) ^ key) * 0x9E3779B1 + key)
    return (bits >> 8).to(tl.int32) >= threshold


def drop_arguments(drop: Drop | None) -> tuple[Tensor | None, int, int, float]:
    """What kernels take: seed, site, what 24 random bits are compared with, scale of what is kept."""
    if drop is None:
        return None, 0, 0, 1.0
    threshold = round(drop.rate * 2**BITS)
    return drop.seed, drop.site, threshold, 1 / (1 - threshold / 2**BITS)

"""A random order of any number of things without holding it: where each one goes is computed on the spot.

A keyed permutation (a Feistel network, Luby and Rackoff 1988) of the numbers below a power of four; those that fall outside
are sent through again until they fall inside, at most four times in the mean. So the order of ten million pairs costs
nothing to keep, any part of it can be looked up first, and its quality does not depend on memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ROUNDS = 6


class Shuffle:
    """A permutation of range(count) that follows from the seed."""

    def __init__(self, count: int, seed: tuple[int, ...]) -> None:
        self.count = count
        self.half_bits = max(1, -(-max(count - 1, 1).bit_length() // 2))
        self.keys = np.random.SeedSequence(seed).generate_state(ROUNDS, np.uint64)

    def __getitem__(self, places: slice) -> NDArray[np.int64]:
        """What stands at these places of the order."""
        at = np.arange(*places.indices(self.count), dtype=np.uint64)
        result = self._mix(at)
        outside = result >= self.count
        while outside.any():
            result[outside] = self._mix(result[outside])
            outside = result >= self.count
        return result.astype(np.int64)

    def _mix(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        bits, mask = np.uint64(self.half_bits), np.uint64((1 << self.half_bits) - 1)
        left, right = numbers >> bits, numbers & mask
        for key in self.keys:
            left, right = right, left ^ (_hash(right ^ key) & mask)
        return (left << bits) | right


def _hash(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64 well-mixed bits (the finalizer of SplitMix64, Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))

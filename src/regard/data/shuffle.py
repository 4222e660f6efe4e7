"""A random permutation of any size that is computed where it is needed, and never stored.

A Feistel network (Luby and Rackoff 1988) permutes the numbers below a power of four. Results that are too large are permuted
again until they are in range, at most four times on average. So the order of ten million pairs takes no memory, and any part
of it can be computed first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

ROUNDS = 6


class Shuffle:
    """A permutation of range(count), determined by the seed."""

    def __init__(self, count: int, seed: tuple[int, ...]) -> None:
        self.count = count
        self.half_bits = max(1, -(-max(count - 1, 1).bit_length() // 2))
        self.keys = np.random.SeedSequence(seed).generate_state(ROUNDS, np.uint64)

    def __getitem__(self, places: slice) -> NDArray[np.int64]:
        """Return the elements at these places of the permutation."""
        return self.at(np.arange(*places.indices(self.count), dtype=np.int64))

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the elements at these places, in any order."""
        result = self._mix(places.astype(np.uint64))
        outside = result >= self.count
        while outside.any():
            result[outside] = self._mix(result[outside])
            outside = result >= self.count
        return result.astype(np.int64)

    def _mix(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        bits, mask = np.uint64(self.half_bits), np.uint64((1 << self.half_bits) - 1)
        left, right = numbers >> bits, numbers & mask
        for key in self.keys:
            left, right = right, left ^ (splitmix64((right ^ key).view(np.int64)).view(np.uint64) & mask)
        return (left << bits) | right


Bits = TypeVar("Bits", NDArray[np.int64], "Tensor")


def splitmix64(bits: Bits) -> Bits:
    """Return 64 well-mixed bits for each signed integer (the finalizer of SplitMix64, Steele et al. 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ unsigned_shift(bits, shift)) * (factor - 2**64)
    return bits ^ unsigned_shift(bits, 31)


def unsigned_shift(bits: Bits, by: int) -> Bits:
    """Return signed integers shifted to the right, filled up with zeros instead of the sign."""
    return (bits >> by) & (2 ** (64 - by) - 1)

"""Which dropout a kernel is to apply."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Drop(NamedTuple):
    """The seed of the step (one int32, on the device), the number of the place in the model, and the rate."""

    seed: Tensor
    site: int
    rate: float

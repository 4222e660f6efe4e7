"""Who sees whom, for kernels: every pattern is an unbroken range a token, and the ranges only move forward."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Ranges(NamedTuple):
    """Query i sees keys first_key[i] to end_key[i]; key j is seen by queries first_query[j] to end_query[j]: int32."""

    first_key: Tensor  # [N]
    end_key: Tensor
    first_query: Tensor  # [M]
    end_query: Tensor

"""Kernels for the GPU, in Triton: attention with several sentences per tile, and several passes over memory fused into one.

Each computes what a few lines of PyTorch in `nn` compute. Those lines remain the reference and the fallback. Kernels run on
NVIDIA GPUs if Triton is installed, and in Triton's interpreter for tests.

Shapes: N query tokens, M key tokens.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from regard.config.transformer import WIDEST_HEAD as WIDEST_HEAD

_allowed = True


class Drop(NamedTuple):
    """The dropout that a kernel applies."""

    seed: Tensor  # of the training step: one int32 on the device
    site: int  # the number of this dropout in the step
    rate: float


class Ranges(NamedTuple):
    """Which keys each query sees: always one unbroken range, whose ends never move backwards. All are int32."""

    first_key: Tensor  # query i sees keys first_key[i] up to, but not including, end_key[i]: [N]
    end_key: Tensor
    first_query: Tensor  # key j is seen by queries first_query[j] up to, but not including, end_query[j]: [M]
    end_query: Tensor


@contextmanager
def allowed(yes: bool) -> Iterator[None]:
    """Allow or forbid kernels inside the context."""
    global _allowed
    before, _allowed = _allowed, yes
    try:
        yield
    finally:
        _allowed = before


def are_allowed() -> bool:
    """Return whether kernels are allowed in this context."""
    return _allowed


@cache
def installed() -> bool:
    """Return whether Triton can be imported."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


@cache
def interpreted() -> bool:
    """Return whether kernels run in Triton's interpreter, on any device: slow, for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def usable(x: Tensor) -> bool:
    """Return whether kernels can work on this tensor. They compute in float32 at most."""
    return are_allowed() and (x.is_cuda or interpreted()) and x.dtype is not torch.float64 and installed()

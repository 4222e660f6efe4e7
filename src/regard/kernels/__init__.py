"""Kernels for the GPU, in Triton: several whole sentences in one attention tile, and passes over memory joined into one.

Each computes what a few lines of PyTorch elsewhere in the house compute (`nn`, `training.loss`), which remain the reference
and the fallback. They run on NVIDIA GPUs where Triton is installed, and in Triton's interpreter for tests.
Those for the CPU are in `cpu`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

WIDEST_HEAD = 256  # that attention is written for

_allowed = True


@contextmanager
def allowed(yes: bool) -> Iterator[None]:
    """A context in which kernels may be used, or not."""
    global _allowed
    before, _allowed = _allowed, yes
    try:
        yield
    finally:
        _allowed = before


def are_allowed() -> bool:
    """Whether they may be used here."""
    return _allowed


@cache
def installed() -> bool:
    """Whether Triton can be imported here."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


@cache
def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on any device: slow, for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def usable(x: Tensor) -> bool:
    """Return whether kernels can work on this tensor. They compute in float32 at most."""
    return are_allowed() and (x.is_cuda or interpreted()) and x.dtype is not torch.float64 and installed()

"""Which library multiplies float32 matrices on a CPU in training.

On Arm CPUs PyTorch gives xWᵀ to the Arm Compute Library, which has 62 GFLOP/s where OpenBLAS has 69 (LOG.md, "On a Neoverse
N1"), and the other two products of a layer, for its gradients, to OpenBLAS.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

ON_ARM = platform.machine() in ("aarch64", "arm64")


@contextmanager
def openblas(precision: torch.dtype) -> Iterator[None]:
    """A context in which OpenBLAS multiplies all of them, where that is faster. It is a switch for the whole process."""
    if not ON_ARM or precision != torch.float32:
        yield
        return
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before

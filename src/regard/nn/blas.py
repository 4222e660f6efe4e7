"""Which library multiplies float32 matrices on a CPU in training.

On Arm CPUs PyTorch gives xWᵀ to the Arm Compute Library, which has 62 GFLOP/s where OpenBLAS has 69 (LOG.md, "On a Neoverse
N1"), and the other two products of a layer, for its gradients, to OpenBLAS.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

ON_ARM = platform.machine() in ("aarch64", "arm64")


def multiply(x_ND: Tensor, weight_FD: Tensor, bias_F: Tensor | None = None) -> Tensor:
    """xWᵀ + b."""
    with openblas(x_ND):
        return F.linear(x_ND, weight_FD, bias_F)


@contextmanager
def openblas(x_ND: Tensor) -> Iterator[None]:
    """A context in which OpenBLAS multiplies such matrices, where it is faster. It is a switch for the whole process."""
    if not ON_ARM or x_ND.is_cuda or x_ND.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        yield
        return
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before

"""Which library multiplies float32 matrices on a CPU in training.

On Arm PyTorch gives xWᵀ to oneDNN and the Arm Compute Library, which has 62 GFLOP/s where PyTorch's own BLAS has 69 (LOG.md,
"On a Neoverse N1"), and the other two products of a layer, for its gradients, to that.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

ON_ARM = platform.machine() == "aarch64"


@contextmanager
def own_blas(device: torch.device, precision: torch.dtype) -> Iterator[None]:
    """A context in which PyTorch's own BLAS multiplies all of them, where that is faster: a switch for the whole process."""
    if not ON_ARM or device.type != "cpu" or precision != torch.float32:
        yield
        return
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before

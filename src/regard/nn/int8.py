"""Products of 8-bit integers, for search on a CPU: up to three times as fast as float32 (LOG.md, "On a Neoverse N1").

Each row of the matrix has a scale, computed once. Each row of the input has a scale, computed for every product. Sums of
integer products are exact, so a row of the result does not depend on the other rows of the batch. (The float32 parts of a
model do, in the last digit, and a number halfway between two integers may then be rounded the other way.)

Shapes: N rows, D width in, F width out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import ConfigError

FEWEST = 2**17  # entries of the smallest matrix for which quantizing the input pays
LARGEST = 127


def refuse_without_int8(device: torch.device) -> None:
    """Raise ConfigError if 8-bit products are not available on this device."""
    if device.type != "cpu":
        raise ConfigError(f"8-bit integers are for a CPU, and this is {device.type}; leave out int8, or use device=cpu")
    if not torch.backends.mkldnn.is_available():
        raise ConfigError("8-bit integers need a PyTorch with oneDNN, which this one does not have; leave out int8")


class Int8Matrix:
    """A matrix [F, D] of 8-bit integers."""

    @classmethod
    def of(cls, weight_FD: Tensor) -> Int8Matrix | None:
        """Return the matrix as integers if it is large enough to be faster for any number of rows, else None."""
        return cls(weight_FD) if weight_FD.numel() >= FEWEST else None

    def __init__(self, weight_FD: Tensor) -> None:
        weight_FD = weight_FD.detach().float().contiguous()  # row-major: qlinear_prepack packs another order wrongly
        largest_F1 = _largest(weight_FD)
        integers_FD = (weight_FD * (LARGEST / largest_F1)).round_().to(torch.int8)
        self.packed = torch.ops.onednn.qlinear_prepack(integers_FD, None)
        self.scale_F = largest_F1[:, 0] / LARGEST**2
        self.one, self.zero = torch.ones(1), torch.zeros(1, dtype=torch.int64)

    def fits(self, x_ND: Tensor) -> bool:
        """Return True: used for any number of rows, so that results do not depend on the batch size."""
        return True

    def times(self, x_ND: Tensor, bias_F: Tensor | None = None, *, relu: bool = False) -> Tensor:
        """Return xWᵀ + b, or max(0, xWᵀ + b), in float32: [N, F]."""
        largest_N1 = _largest(x_ND)
        integers_ND = (x_ND * (LARGEST / largest_N1)).round_().to(torch.int8)
        sums_NF = torch.ops.onednn.qlinear_pointwise(
            *(integers_ND, 1.0, 0), *(self.packed, self.one, self.zero), None, *(1.0, 0, torch.float32), "none", [], ""
        ).mul_(largest_N1)
        out_NF = sums_NF.mul_(self.scale_F) if bias_F is None else torch.addcmul(bias_F, sums_NF, self.scale_F)
        return out_NF.relu_() if relu else out_NF


def _largest(x_ND: Tensor) -> Tensor:
    """Return the largest magnitude of each row: [N, 1]. A row of zeros gets a tiny number, so that 127 over it is finite."""
    return x_ND.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-30)

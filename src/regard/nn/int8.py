"""Products of 8-bit integers, for search on a CPU: up to three times as fast as float32 (LOG.md, "On a Neoverse N1").

A row of the matrix has a scale of its own, made once, and so has a row that is multiplied with it, made when it comes. The
sums of products are whole numbers and exact, so here a row does not depend on the rows beside it. (What stays float32
does, in its last digit, and a number between two integers may then become the other one.)

Shapes: N rows, D width in, F width out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import ConfigError

FEWEST = 2**17  # numbers of a matrix from which it pays to make its input integers
LARGEST = 127


def refuse_without_int8(device: torch.device) -> None:
    """Says what is missing where such products cannot be had."""
    if device.type != "cpu":
        raise ConfigError(f"8-bit integers are for a CPU, and this is {device.type}; leave out int8, or use device=cpu")
    if not torch.backends.mkldnn.is_available():
        raise ConfigError("8-bit integers need a PyTorch with oneDNN, which this one does not have; leave out int8")


class Int8Matrix:
    """A matrix [F, D] as integers."""

    @classmethod
    def of(cls, weight_FD: Tensor) -> Int8Matrix | None:
        """Such a matrix, where it is large enough to be the faster one, however many rows there will be."""
        return cls(weight_FD) if weight_FD.numel() >= FEWEST else None

    def __init__(self, weight_FD: Tensor) -> None:
        weight_FD = weight_FD.detach().float().contiguous()  # row by row: another order would be packed wrongly
        largest_F1 = _largest(weight_FD)
        integers_FD = (weight_FD * (LARGEST / largest_F1)).round_().to(torch.int8)
        self.packed = torch.ops.onednn.qlinear_prepack(integers_FD, None)
        self.scale_F = largest_F1[:, 0] / LARGEST**2
        self.one, self.zero = torch.ones(1), torch.zeros(1, dtype=torch.int64)

    def fits(self, x_ND: Tensor) -> bool:
        """Whether to use it for these rows: for all, or one would depend on how many are beside it."""
        return True

    def times(self, x_ND: Tensor, bias_F: Tensor | None = None, *, relu: bool = False) -> Tensor:
        """xWᵀ + b, or max(0, xWᵀ + b): [N, F], of float32."""
        largest_N1 = _largest(x_ND)
        integers_ND = (x_ND * (LARGEST / largest_N1)).round_().to(torch.int8)
        sums_NF = torch.ops.onednn.qlinear_pointwise(
            *(integers_ND, 1.0, 0), *(self.packed, self.one, self.zero), None, *(1.0, 0, torch.float32), "none", [], ""
        ).mul_(largest_N1)
        out_NF = sums_NF.mul_(self.scale_F) if bias_F is None else torch.addcmul(bias_F, sums_NF, self.scale_F)
        return out_NF.relu_() if relu else out_NF


def _largest(x_ND: Tensor) -> Tensor:
    """The largest magnitude of each row, or so little that it is nothing and 127 over it is still a number: [N, 1]."""
    return x_ND.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-30)

"""A matrix laid out once for the products of search on a CPU (`kernels.cpu`): few rows, the same matrix again and again.

Shapes: N rows, D width in, F width out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.kernels import cpu
from regard.kernels.cpu.build import built


class PackedMatrix:
    """A matrix [F, D] of float32, besides the one that it was made of."""

    @classmethod
    def of(cls, weight_FD: Tensor) -> PackedMatrix | None:
        """Such a matrix, where there are kernels for it."""
        fits = weight_FD.dtype is torch.float32 and weight_FD.device.type == "cpu"
        return cls(weight_FD.detach()) if fits and built().library is not None else None

    def __init__(self, weight_FD: Tensor) -> None:
        self.width_out, self.width = weight_FD.shape
        columns = cpu.library().panel()
        self.numbers = torch.empty(-(-self.width_out // columns) * columns * self.width)
        places = (weight_FD.data_ptr(), weight_FD.stride(0), weight_FD.stride(1), self.numbers.data_ptr())
        cpu.library().pack(*places, self.width, self.width_out)

    def fits(self, x_ND: Tensor) -> bool:
        """Whether it is the faster one for these rows; a single one is a product with a vector, which PyTorch does well."""
        return x_ND.size(0) > 1 and cpu.usable(x_ND) and torch.get_num_threads() == 1

    def times(self, x_ND: Tensor, bias_F: Tensor | None = None, *, relu: bool = False) -> Tensor:
        """xWᵀ + b, or max(0, xWᵀ + b): [N, F]."""
        N, D = x_ND.shape
        x_ND = x_ND if x_ND.stride(1) == 1 else x_ND.contiguous()
        out_NF = torch.empty(N, self.width_out)
        enough = cpu.library().times(
            *(x_ND.data_ptr(), x_ND.stride(0), self.numbers.data_ptr(), None if bias_F is None else bias_F.data_ptr()),
            *(relu, out_NF.data_ptr(), N, D, self.width_out),
        )
        if not enough:
            raise MemoryError(f"no memory for a product of {N} rows")
        return out_NF

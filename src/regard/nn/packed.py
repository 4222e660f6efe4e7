"""Matrices packed for the products of search on a CPU (`kernels.cpu`): few rows, the same matrix in every step.

Shapes: N rows, D width in, F width out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.kernels import cpu
from regard.kernels.cpu.build import built


class PackedMatrix:
    """A float32 matrix [F, D], packed at its first product. It is then in memory twice.

    A row of a product does not depend on the other rows. A single row is multiplied by PyTorch, and may differ in the last
    digit.
    """

    @classmethod
    def of(cls, weight_FD: Tensor) -> PackedMatrix | None:
        """Return the matrix if there are kernels for it, else None."""
        fits = weight_FD.dtype is torch.float32 and weight_FD.device.type == "cpu"
        return cls(weight_FD.detach()) if fits and built().library is not None else None

    def __init__(self, weight_FD: Tensor) -> None:
        self.weight = weight_FD
        self.numbers: Tensor | None = None

    def fits(self, x_ND: Tensor) -> bool:
        """Return whether this is faster for these rows. A single row is a product with a vector, which PyTorch does well."""
        return x_ND.size(0) > 1 and cpu.usable(x_ND) and torch.get_num_threads() == 1

    def times(self, x_ND: Tensor, bias_F: Tensor | None = None, *, relu: bool = False) -> Tensor:
        """Return xWᵀ + b, or max(0, xWᵀ + b): [N, F]."""
        (N, D), (F, width) = x_ND.shape, self.weight.shape
        assert width == D and x_ND.dtype is torch.float32, (x_ND.shape, x_ND.dtype, self.weight.shape)
        numbers = self._pack() if self.numbers is None else self.numbers
        self.numbers = numbers  # two threads may both set it; each uses its own copy
        x_ND = x_ND if x_ND.stride(1) == 1 else x_ND.contiguous()
        out_NF = x_ND.new_empty(N, F)
        enough = cpu.library().times(
            *(x_ND.data_ptr(), x_ND.stride(0), numbers.data_ptr(), None if bias_F is None else bias_F.data_ptr()),
            *(relu, out_NF.data_ptr(), N, D, F),
        )
        if not enough:
            raise MemoryError(f"no memory for a product of {N} rows")
        return out_NF

    def _pack(self) -> Tensor:
        (F, D), panel = self.weight.shape, cpu.library().panel()
        numbers = self.weight.new_empty(-(-F // panel) * panel * D)
        cpu.library().pack(self.weight.data_ptr(), *self.weight.stride(), numbers.data_ptr(), D, F)
        return numbers

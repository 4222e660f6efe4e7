"""Linear layers, the output layer, and their matrices as search on a CPU uses them.

A `PackedMatrix` is laid out for few rows (`kernels.cpu`). An `Int8Matrix` multiplies 8-bit integers, up to three times as
fast as float32 (LOG.md, "On a Neoverse N1"). Each of its rows has a scale, computed once; each row of the input has one,
computed for every product. Sums of integer products are exact, so a row of the result does not depend on the other rows of
the batch. (The float32 parts of a model do, in the last digit, and a number halfway between two integers may then be
rounded the other way.)

Shapes: N rows, D width in, F width out, V vocabulary.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import kernels
from regard.errors import ConfigError
from regard.kernels import cpu
from regard.kernels.cpu.build import built
from regard.messages import counted
from regard.nn.device import cast_weight, product_dtype

FEW_ROWS = 64 if torch.backends.mkl.is_available() else 128  # measured on a Xeon, and on a Neoverse N1
FEWEST = 2**17  # entries of the smallest matrix for which quantizing the input pays
LARGEST = 127
# The instructions of x86 multiply unsigned by signed integers; oneDNN has no fast product of two signed ones there.
UNSIGNED = platform.machine() in {"x86_64", "AMD64"}
# Without VNNI they add two products in 16 bits: 2 * 255 * 63 is not too large.
LARGEST_WEIGHT = LARGEST if not UNSIGNED or torch.cpu._is_vnni_supported() else 63


class Linear(nn.Linear):
    """Several projections in one matrix. Each is initialized as if it stood alone (Xavier); biases are zero.

    `hidden` is False for a layer that reads inputs or scores outputs. Muon updates hidden layers only.
    """

    def __init__(self, width_in: int, widths_out: Sequence[int], *, bias: bool, hidden: bool = True) -> None:
        self.widths_out, self.hidden = list(widths_out), hidden
        super().__init__(width_in, sum(widths_out), bias=bias)
        self.for_search: PackedMatrix | Int8Matrix | None = None  # the weight in the layout for search

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize the weights. Called by PyTorch."""
        for block in self.weight.split(self.widths_out):
            nn.init.xavier_uniform_(block)
        if self.bias is not None:
            self.bias.zero_()

    def forward(self, x_ND: Tensor) -> Tensor:
        if kernels.usable(x_ND) and torch.is_grad_enabled():
            from regard.kernels.linear import linear

            dtype = product_dtype(x_ND)
            return linear(x_ND.to(dtype), self.weight, self.bias, self._cast(dtype))
        if self.for_search is not None and self.for_search.fits(x_ND):
            return self.for_search.times(x_ND, self.bias)
        return F.linear(x_ND, self.weight, self.bias)

    def and_input(self, x_ND: Tensor, *, relu: bool = False) -> tuple[Tensor, Tensor]:
        """Return xWᵀ + b, or max(0, xWᵀ + b), and x.

        For a residual connection, use the returned x: a kernel then adds its gradient inside the product of the backward
        pass, instead of in a separate pass.
        """
        if kernels.usable(x_ND) and torch.is_grad_enabled():
            from regard.kernels.linear import linear, linear_and_input

            dtype = product_dtype(x_ND)
            if x_ND.dtype != dtype:  # the residual stream is in another precision than products
                return linear(x_ND.to(dtype), self.weight, self.bias, self._cast(dtype), relu=relu), x_ND
            return linear_and_input(x_ND, self.weight, self.bias, self._cast(dtype), relu=relu)
        if relu and self.for_search is not None and self.for_search.fits(x_ND):
            return self.for_search.times(x_ND, self.bias, relu=True), x_ND
        out_NF = self(x_ND)
        return torch.relu_(out_NF) if relu else out_NF, x_ND

    def _cast(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Return weight and bias in this precision, without gradients."""
        return cast_weight(self.weight, dtype), None if self.bias is None else cast_weight(self.bias, dtype)


def for_search(weight_FD: Tensor, *, int8: bool) -> PackedMatrix | Int8Matrix | None:
    """Return the matrix in a layout that search multiplies faster, or None if there is none."""
    return (Int8Matrix.of(weight_FD) if int8 else None) or PackedMatrix.of(weight_FD)


def logits_of(hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None = None) -> Tensor:
    """Return hidden @ weightᵀ + bias: [N, V]. For few rows on a CPU it is computed and stored transposed: faster."""
    if torch.is_inference_mode_enabled() and not hidden_ND.is_cuda and hidden_ND.size(0) <= FEW_ROWS:
        logits_VN = torch.mm(weight_VD, hidden_ND.t().contiguous())
        return (logits_VN if bias_V is None else logits_VN.add_(bias_V[:, None])).t()
    return F.linear(hidden_ND, weight_VD, bias_V)


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
            raise MemoryError(f"no memory for a product of {counted(N, 'row')}")
        return out_NF

    def _pack(self) -> Tensor:
        (F, D), panel = self.weight.shape, cpu.library().panel()
        numbers = self.weight.new_empty(-(-F // panel) * panel * D)
        cpu.library().pack(self.weight.data_ptr(), *self.weight.stride(), numbers.data_ptr(), D, F)
        return numbers


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
        integers_FD = (weight_FD * (LARGEST_WEIGHT / largest_F1)).round_().to(torch.int8)
        self.packed = torch.ops.onednn.qlinear_prepack(integers_FD, None)
        self.scale_F = largest_F1[:, 0] / (LARGEST * LARGEST_WEIGHT)
        self.one, self.zero = torch.ones(1), torch.zeros(1, dtype=torch.int64)

    def fits(self, x_ND: Tensor) -> bool:
        """Return True: used for any number of rows, so that results do not depend on the batch size."""
        return True

    def times(self, x_ND: Tensor, bias_F: Tensor | None = None, *, relu: bool = False) -> Tensor:
        """Return xWᵀ + b, or max(0, xWᵀ + b), in float32: [N, F]."""
        largest_N1 = _largest(x_ND)
        offset, kind = (LARGEST + 1, torch.uint8) if UNSIGNED else (0, torch.int8)
        integers_ND = (x_ND * (LARGEST / largest_N1)).round_().add_(offset).to(kind)
        sums_NF = torch.ops.onednn.qlinear_pointwise(
            *(integers_ND, 1.0, offset),
            *(self.packed, self.one, self.zero),
            None,
            *(1.0, 0, torch.float32),
            "none",
            [],
            "",
        ).mul_(largest_N1)
        out_NF = sums_NF.mul_(self.scale_F) if bias_F is None else torch.addcmul(bias_F, sums_NF, self.scale_F)
        return out_NF.relu_() if relu else out_NF


def _largest(x_ND: Tensor) -> Tensor:
    """Return the largest magnitude of each row: [N, 1]. A row of zeros gets a tiny number, so that 127 over it is finite."""
    return x_ND.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-30)

"""Linear layers, and the output layer.

Shapes: N rows, D width in, F width out, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import kernels
from regard.nn.device import cast_weight, product_dtype

MOST_FEW_ROWS = 4  # for which a GPU has a kernel of its own
FEW_ROWS = 64 if torch.backends.mkl.is_available() else 128  # measured on a Xeon, and on a Neoverse N1


class Linear(nn.Linear):
    """Several projections in one matrix. Each is initialized as if it stood alone (Xavier); biases are zero.

    `hidden` is False for a layer that reads inputs or scores outputs. Muon updates hidden layers only.
    """

    def __init__(self, width_in: int, widths_out: Sequence[int], *, bias: bool, hidden: bool = True) -> None:
        self.widths_out, self.hidden = list(widths_out), hidden
        super().__init__(width_in, sum(widths_out), bias=bias)

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
        if self._has_few_rows(x_ND):
            from regard.kernels.few_rows import linear_few_rows

            return linear_few_rows(x_ND, self.weight, self.bias)
        return F.linear(x_ND, self.weight, self.bias)

    def _has_few_rows(self, x_ND: Tensor) -> bool:
        """Whether our kernel for few rows is faster: in half precision on a GPU, without gradients."""
        few = x_ND.is_cuda and x_ND.size(0) <= MOST_FEW_ROWS and x_ND.dtype == self.weight.dtype
        return few and x_ND.dtype != torch.float32 and kernels.usable(x_ND) and not torch.is_grad_enabled()

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
        if relu and self._has_few_rows(x_ND):
            from regard.kernels.few_rows import linear_few_rows

            return linear_few_rows(x_ND, self.weight, self.bias, relu=True), x_ND
        if relu and x_ND.is_cuda and x_ND.dtype == self.weight.dtype and not torch.is_grad_enabled():
            return torch._addmm_activation(self.bias, x_ND, self.weight.t()), x_ND
        out_NF = self(x_ND)
        return torch.relu_(out_NF) if relu else out_NF, x_ND

    def _cast(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Return weight and bias in this precision, without gradients."""
        return cast_weight(self.weight, dtype), None if self.bias is None else cast_weight(self.bias, dtype)


def logits_of(hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None = None) -> Tensor:
    """Return hidden @ weightᵀ + bias: [N, V]. For few rows on a CPU it is computed and stored transposed: faster.

    Half precision on a GPU gives float32, unless gradients are wanted: the sums have been computed in it.
    """
    half = hidden_ND.dtype in (torch.bfloat16, torch.float16) and hidden_ND.dtype == weight_VD.dtype
    if half and hidden_ND.is_cuda and not torch.is_grad_enabled():
        logits_NV = torch.mm(hidden_ND, weight_VD.t(), out_dtype=torch.float32)
        return logits_NV if bias_V is None else logits_NV.add_(bias_V)
    if torch.is_inference_mode_enabled() and not hidden_ND.is_cuda and hidden_ND.size(0) <= FEW_ROWS:
        logits_VN = torch.mm(weight_VD, hidden_ND.t().contiguous())
        return (logits_VN if bias_V is None else logits_VN.add_(bias_V[:, None])).t()
    return F.linear(hidden_ND, weight_VD, bias_V)

"""xWᵀ + b or max(0, xWᵀ + b) in half precision, with gradients of the weights in float32.

PyTorch's backward pass rounds the gradient of a weight to the precision of the product and converts it afterwards. Here the
product writes float32 itself. The gradients of bias and activation take one pass. If the input is also used elsewhere (a
residual connection), its two gradients are added inside the product instead of in a separate pass.

Shapes: N tokens, D width in, F width out.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.common import sum_rows

PROGRAMS = 256  # partial sums of the bias's gradient


Cast = tuple[Tensor, Tensor | None]  # weight and bias in the precision of x


def linear(x_ND: Tensor, weight_FD: Tensor, bias_F: Tensor | None, cast: Cast, *, relu: bool = False) -> Tensor:
    """Return xWᵀ + b, or max(0, xWᵀ + b): [N, F]. `cast` is multiplied; `weight` and `bias` get the gradients."""
    out: Tensor = linear_and_input(x_ND, weight_FD, bias_F, cast, relu=relu)[0]
    return out


def linear_and_input(
    x_ND: Tensor, weight_FD: Tensor, bias_F: Tensor | None, cast: Cast, *, relu: bool = False
) -> tuple[Tensor, Tensor]:
    """Return what `linear` returns, and the input. The gradient of the second result is overwritten in the backward pass."""
    assert bias_F is not None or not relu, "the activation is computed with the bias"
    return _Linear.apply(x_ND, weight_FD, bias_F, *cast, relu)


@triton.jit
def _columns(
    gradient, out, change, to_bias, N,
    F: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sum the columns of the gradient. With RELU, first pass it through the activation, and store the result."""
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(N, ROWS), tl.num_programs(0)):
        row = tile * ROWS + tl.arange(0, ROWS)
        inside = (row < N)[:, None] & (column < F)[None, :]
        entry = row[:, None] * F + column[None, :]
        slope = tl.load(gradient + entry, mask=inside, other=0.0)
        if RELU:
            slope = tl.where(tl.load(out + entry, mask=inside, other=0.0) > 0, slope, 0.0)
            tl.store(change + entry, slope, mask=inside)
        total += slope.to(tl.float32)
    tl.store(to_bias + tl.program_id(0) * F + column, tl.sum(total, axis=0), mask=column < F)


def _pass_back(gradient: Tensor, out: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the gradient before the activation (the given one, if there is no activation), and that of the bias."""
    (N, F), width = gradient.shape, min(512, triton.next_power_of_2(gradient.size(1)))
    rows, columns = 4096 // width, triton.cdiv(F, width)
    programs = max(1, min(2 * PROGRAMS // columns, triton.cdiv(N, rows)))
    change = gradient if out is None else torch.empty_like(gradient)
    to_bias = torch.empty(1, programs, F, dtype=torch.float32, device=gradient.device)
    _columns[(programs, columns)](
        gradient, out, change, to_bias, N, F=F, RELU=out is not None, ROWS=rows, WIDTH=width, num_warps=4
    )
    return change, sum_rows(to_bias)[0]


def product_float32(left: Tensor, right: Tensor, onto: Tensor | None = None) -> Tensor:
    """Return left @ right, summed and stored in float32; added to `onto` in place, if given."""
    if not left.is_cuda or left.dtype == torch.float32:
        product = torch.mm(left, right).float()
        return product if onto is None else onto.add_(product)
    if onto is None:
        return torch.mm(left, right, out_dtype=torch.float32)
    return torch.addmm(onto, left, right, out_dtype=torch.float32, out=onto)


def _add_product(other: Tensor | None, gradient: Tensor, weight: Tensor) -> Tensor:
    """Return other + gradient @ weight, in the memory of `other`, which is not used again."""
    if other is None:
        return torch.mm(gradient, weight)
    if other.data_ptr() == gradient.data_ptr():
        return torch.addmm(other, gradient, weight)
    return torch.addmm(other, gradient, weight, out=other)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        cast_weight: Tensor,
        cast_bias: Tensor | None,
        relu: bool,
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast(x.device.type, enabled=False):
            if cast_bias is None:
                out = torch.mm(x, cast_weight.t())
            elif relu:
                out = torch._addmm_activation(cast_bias, x, cast_weight.t())
            else:
                out = torch.addmm(cast_bias, x, cast_weight.t())
        ctx.save_for_backward(x, cast_weight, out if relu else None)
        ctx.biased = bias is not None
        ctx.set_materialize_grads(False)
        return out, x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, of_input: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight, out = ctx.saved_tensors
        gradient, to_bias = gradient.contiguous(), None
        if ctx.biased:
            gradient, to_bias = _pass_back(gradient, out)
        to_x = _add_product(of_input, gradient, weight) if ctx.needs_input_grad[0] else None
        to_weight = product_float32(gradient.t(), x) if ctx.needs_input_grad[1] else None  # frozen weights need none
        return to_x, to_weight, to_bias, None, None, None

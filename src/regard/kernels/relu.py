"""max(0, xWᵀ + b) with the activation inside the product, and its gradient with the bias's sum inside one pass.

Shapes: N tokens, D width, F hidden width.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS = 256  # rows of partial sums of the bias's gradient


def linear_relu(x_ND: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """max(0, xWᵀ + b): [N, F]. Under autocast the product runs in its precision."""
    dtype = torch.get_autocast_dtype(x_ND.device.type) if torch.is_autocast_enabled(x_ND.device.type) else x_ND.dtype
    return _LinearRelu.apply(x_ND.to(dtype), weight_FD.to(dtype), bias_F.to(dtype))


@triton.jit
def _relu_backward(gradient, out, change, to_bias, N, F: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(N, ROWS), tl.num_programs(0)):
        row = tile * ROWS + tl.arange(0, ROWS)
        inside = (row < N)[:, None] & (column < F)[None, :]
        entry = row[:, None] * F + column[None, :]
        passed = tl.load(out + entry, mask=inside, other=0.0) > 0
        slope = tl.where(passed, tl.load(gradient + entry, mask=inside, other=0.0), 0.0)
        tl.store(change + entry, slope, mask=inside)
        total += slope.to(tl.float32)
    tl.store(to_bias + tl.program_id(0) * F + column, tl.sum(total, axis=0), mask=column < F)


class _LinearRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            out = torch._addmm_activation(bias, x, weight.t())
        ctx.save_for_backward(x, weight, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight, out = ctx.saved_tensors
        (N, F), width = out.shape, min(512, triton.next_power_of_2(out.size(1)))
        rows, columns = 2048 // width, triton.cdiv(F, width)
        programs = max(1, min(PROGRAMS, triton.cdiv(N, rows)) // columns)
        change = torch.empty_like(out)
        to_bias = torch.empty(programs, F, dtype=torch.float32, device=out.device)
        grid = (programs, columns)
        _relu_backward[grid](gradient.contiguous(), out, change, to_bias, N, F=F, ROWS=rows, WIDTH=width, num_warps=4)
        return change @ weight, change.t() @ x, to_bias.sum(dim=0).to(out.dtype)

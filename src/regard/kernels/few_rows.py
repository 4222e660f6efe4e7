"""xWᵀ + b for so few rows that reading the matrix is all the work: a program reads a few rows of it, and nothing twice.

Libraries compute such products with tiles made for many rows, of which too few run at a time.

Shapes: R rows, D width in, F width out.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS = 256  # that the columns are divided among, if there are enough of them
ENTRIES = 4096  # of the matrix that a program reads at a time, at most


@triton.jit
def _few_rows(
    x, weight, bias, out, x_row, R, F,
    D: tl.constexpr, BIAS: tl.constexpr, RELU: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column = tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    real, there = row < R, column < F
    total = tl.zeros([COLUMNS, ROWS], tl.float32)
    for start in tl.static_range(0, D, WIDTH):
        d = start + tl.arange(0, WIDTH)
        w = tl.load(
            weight + column.to(tl.int64)[:, None] * D + d[None, :], mask=there[:, None] & (d < D)[None, :], other=0.0
        )
        value = tl.load(x + row[:, None] * x_row + d[None, :], mask=real[:, None] & (d < D)[None, :], other=0.0)
        total += tl.sum(w.to(tl.float32)[:, None, :] * value.to(tl.float32)[None, :, :], axis=2)
    if BIAS:
        total += tl.load(bias + column, mask=there, other=0.0).to(tl.float32)[:, None]
    if RELU:
        total = tl.maximum(total, 0.0)
    place = out + row[None, :] * F + column[:, None]
    tl.store(place, total.to(out.dtype.element_ty), mask=there[:, None] & real[None, :])


def linear_few_rows(x_RD: Tensor, weight_FD: Tensor, bias_F: Tensor | None, *, relu: bool = False) -> Tensor:
    """Return xWᵀ + b, or max(0, xWᵀ + b): [R, F]."""
    (R, D), F = x_RD.shape, weight_FD.size(0)
    assert weight_FD.is_contiguous() and x_RD.stride(1) == 1
    out = torch.empty(R, F, dtype=x_RD.dtype, device=x_RD.device)
    columns = min(16, max(2, triton.next_power_of_2(F // PROGRAMS)))
    _few_rows[(triton.cdiv(F, columns),)](
        x_RD, weight_FD, bias_F, out, x_RD.stride(0), R, F, D=D, BIAS=bias_F is not None, RELU=relu,
        ROWS=triton.next_power_of_2(R), COLUMNS=columns, WIDTH=min(triton.next_power_of_2(D), ENTRIES // columns),
        num_warps=4,
    )  # fmt: skip
    return out

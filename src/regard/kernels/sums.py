"""The rows of a matrix added up: the last step of a gradient of which every program summed its own rows.

Shapes: P programs, C columns.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS, WARPS = 1024, 8, 8  # of a tile, and what shares it


@triton.jit
def _sum_rows(partial, out, P, C, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    partial += tl.program_id(1) * P * C
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, P, ROWS):
        inside = (start + row < P)[:, None] & (column < C)[None, :]
        total += tl.load(partial + (start + row)[:, None] * C + column[None, :], mask=inside, other=0.0)
    tl.store(out + tl.program_id(1) * C + column, tl.sum(total, axis=0), mask=column < C)


def sum_rows(partial_KPC: Tensor) -> Tensor:
    """The sum over P: [K, C]."""
    K, P, C = partial_KPC.shape
    out = torch.empty(K, C, dtype=torch.float32, device=partial_KPC.device)
    _sum_rows[(triton.cdiv(C, COLUMNS), K)](partial_KPC, out, P, C, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS)
    return out

"""What several kernels share: the random bits of dropout, and the sum of rows.

Random bits need no generator: they are a hash of (seed of the step, number of the dropout, number of the entry). The
backward pass computes the same bits again instead of storing them, and a resumed run draws the same ones.

Shapes: P programs, C columns.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels import Drop

BITS = 24  # a rate is rounded to a multiple of 2^-24
ROWS, COLUMNS, WARPS = 1024, 8, 8  # size of a tile of `sum_rows`, and its warps


@triton.jit
def mix(h):
    """Return a pseudo-random permutation of 32-bit numbers (constants from Wellons' search for low bias)."""
    h ^= h >> 16
    h *= 0x7FEB352D
    h ^= h >> 15
    h *= 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
def kept(entry, seed, site, threshold):
    """Return True for the entries that dropout number `site` keeps."""
    key = mix(seed.to(tl.uint32) + site.to(tl.uint32) * 0x9E3779B9)
    bits = mix((entry.to(tl.uint32) ^ key) * 0x9E3779B1 + key)
    return (bits >> 8).to(tl.int32) >= threshold


def drop_arguments(drop: Drop | None) -> tuple[Tensor | None, int, int, float]:
    """Return the arguments of a kernel: seed, site, threshold of 24 random bits, and scale of the entries kept."""
    if drop is None:
        return None, 0, 0, 1.0
    threshold = round(drop.rate * 2**BITS)
    return drop.seed, drop.site, threshold, 1 / (1 - threshold / 2**BITS)


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
    """Return the sum over P, [K, C]: the last step of a gradient of which each program summed its own rows."""
    K, P, C = partial_KPC.shape
    out = torch.empty(K, C, dtype=torch.float32, device=partial_KPC.device)
    _sum_rows[(triton.cdiv(C, COLUMNS), K)](partial_KPC, out, P, C, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS)
    return out

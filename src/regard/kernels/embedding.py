"""Scaling of embeddings, positions and dropout in one pass (sections 3.4, 3.5 and 5.4).

Shapes: N tokens, V vocabulary, P positions, D width.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels import Drop
from regard.kernels.common import drop_arguments, kept


def embed(
    ids_N: Tensor,
    table_VD: Tensor,
    places_N: Tensor,
    positions_PD: Tensor | None,
    *,
    scale: float,
    drop: Drop | None,
    dtype: torch.dtype,
) -> Tensor:
    """Return Dropout(scale * table[ids] + positions[places]): [N, D]. The positions get no gradient."""
    return _Embed.apply(ids_N, table_VD, places_N, positions_PD, scale, drop, dtype)


@triton.jit(do_not_specialize=["site"])
def _forward(
    ids, table, places, positions, out, scale, seed, site, threshold, gain, N,
    D: tl.constexpr, PLACED: tl.constexpr, DROP: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    inside = (row < N)[:, None] & (column < D)[None, :]
    entry = row[:, None] * D + column[None, :]
    token = tl.load(ids + row, mask=row < N, other=0).to(tl.int64)
    value = tl.load(table + token[:, None] * D + column[None, :], mask=inside, other=0.0).to(tl.float32) * scale
    if PLACED:
        place = tl.load(places + row, mask=row < N, other=0)
        value += tl.load(positions + place[:, None] * D + column[None, :], mask=inside, other=0.0)
    if DROP:
        value = tl.where(kept(entry, tl.load(seed), site, threshold), value * gain, 0.0)
    tl.store(out + entry, value.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["site"])
def _backward(slope, to_rows, scale, seed, site, threshold, gain, count, DROP: tl.constexpr, BLOCK: tl.constexpr):
    entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(slope + entry, mask=entry < count, other=0.0).to(tl.float32) * scale
    if DROP:
        value = tl.where(kept(entry, tl.load(seed), site, threshold), value * gain, 0.0)
    tl.store(to_rows + entry, value, mask=entry < count)


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, ids: Tensor, table: Tensor, places: Tensor, positions: Tensor | None,
        scale: float, drop: Drop | None, dtype: torch.dtype,
    ) -> Tensor:  # fmt: skip
        N, D = ids.size(0), table.size(1)
        out = torch.empty(N, D, dtype=dtype, device=table.device)
        width = triton.next_power_of_2(D)
        rows = max(1, 1024 // width)
        _forward[(triton.cdiv(N, rows),)](
            ids, table, places, positions, out, scale, *drop_arguments(drop), N,
            D=D, PLACED=positions is not None, DROP=drop is not None, ROWS=rows, WIDTH=width,
        )  # fmt: skip
        ctx.save_for_backward(ids)
        ctx.size, ctx.scale, ctx.drop = table.size(0), scale, drop
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        (ids,) = ctx.saved_tensors
        to_rows = torch.empty(slope.shape, dtype=torch.float32, device=slope.device)
        grid = (triton.cdiv(slope.numel(), 1024),)
        noise = drop_arguments(ctx.drop)
        _backward[grid](
            slope.contiguous(), to_rows, ctx.scale, *noise, slope.numel(), DROP=ctx.drop is not None, BLOCK=1024
        )
        to_table = torch.ops.aten.embedding_dense_backward(to_rows, ids, ctx.size, -1, False)
        return None, to_table, None, None, None, None, None

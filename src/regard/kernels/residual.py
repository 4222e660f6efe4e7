"""Residual connection, dropout and normalization in one pass over memory (sections 3.1 and 5.4).

    add_dropout    x + Dropout(branch)
    norm           LayerNorm(x) or RMSNorm(x)
    add_norm       LayerNorm(x + Dropout(branch)), the published order

Statistics are computed in float32. Shapes: N rows, D width.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels import Drop
from regard.kernels.common import drop_arguments, kept, sum_rows

PROGRAMS = 1056  # of the backward pass of a norm: each sums its part of the gradients of weight and bias


def add_dropout(x: Tensor | None, branch: Tensor, drop: Drop) -> Tensor:
    """Return x + Dropout(branch), or Dropout(branch) without x."""
    return _AddDropout.apply(x, branch, drop)


def norm(x: Tensor, weight: Tensor, bias: Tensor | None, *, eps: float) -> Tensor:
    """Return the LayerNorm of x, or its RMSNorm without a bias."""
    if not torch.is_grad_enabled():
        return _run_norm(x, None, weight, bias, eps, None, keep=False)[0]
    return _Norm.apply(x, None, weight, bias, eps, None)


def add_norm(
    x: Tensor, branch: Tensor, weight: Tensor, bias: Tensor | None, *, eps: float, drop: Drop | None
) -> Tensor:
    """Return the norm of x + Dropout(branch)."""
    if not torch.is_grad_enabled():
        return _run_norm(x, branch, weight, bias, eps, drop, keep=False)[0]
    return _Norm.apply(x, branch, weight, bias, eps, drop)


# Dropout


@triton.jit(do_not_specialize=["site"])
def _dropout_kernel(x, branch, out, seed, site, threshold, scale, count, ADD: tl.constexpr, BLOCK: tl.constexpr):
    entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < count
    value = tl.load(branch + entry, mask=inside).to(tl.float32)
    value = tl.where(kept(entry, tl.load(seed), site, threshold), value * scale, 0.0)
    if ADD:
        value += tl.load(x + entry, mask=inside).to(tl.float32)
    tl.store(out + entry, value.to(out.dtype.element_ty), mask=inside)


def _run_dropout(x: Tensor | None, branch: Tensor, drop: Drop) -> Tensor:
    branch = branch.contiguous()
    out = torch.empty_like(branch)
    grid = (triton.cdiv(branch.numel(), 1024),)
    _dropout_kernel[grid](x, branch, out, *drop_arguments(drop), branch.numel(), ADD=x is not None, BLOCK=1024)
    return out


class _AddDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor | None, branch: Tensor, drop: Drop) -> Tensor:
        ctx.drop = drop
        return _run_dropout(None if x is None else x.contiguous(), branch, drop)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:
        to_x = gradient if ctx.needs_input_grad[0] else None
        return to_x, _run_dropout(None, gradient, ctx.drop), None


# Norms


@triton.jit(do_not_specialize=["site"])
def _norm_forward(
    x, branch, weight, bias, sums, out, means, inverses, seed, site, threshold, scale, eps, N,
    D: tl.constexpr, ADD: tl.constexpr, DROP: tl.constexpr, CENTRED: tl.constexpr, KEEP: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store the norm. With KEEP, also store what the backward pass needs."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    inside = (row < N)[:, None] & (column < D)[None, :]
    entry = row[:, None] * D + column[None, :]
    value = tl.load(x + entry, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        added = tl.load(branch + entry, mask=inside, other=0.0).to(tl.float32)
        if DROP:
            added = tl.where(kept(entry, tl.load(seed), site, threshold), added * scale, 0.0)
        value += added
        rounded = value.to(sums.dtype.element_ty)
        if KEEP:
            tl.store(sums + entry, rounded, mask=inside)
        value = rounded.to(tl.float32)  # the backward pass uses the stored values
    if CENTRED:
        mean = tl.sum(value, axis=1) / D
        if KEEP:
            tl.store(means + row, mean, mask=row < N)
        value = tl.where(inside, value - mean[:, None], 0.0)
    inverse = 1 / tl.sqrt(tl.sum(value * value, axis=1) / D + eps)
    if KEEP:
        tl.store(inverses + row, inverse, mask=row < N)
    result = value * inverse[:, None] * tl.load(weight + column, mask=column < D, other=0.0).to(tl.float32)[None, :]
    if CENTRED:
        result += tl.load(bias + column, mask=column < D, other=0.0).to(tl.float32)[None, :]
    tl.store(out + entry, result.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["site"])
def _norm_backward(
    gradient, sums, weight, means, inverses, to_x, to_branch, to_weights, seed, site, threshold, scale, N,
    D: tl.constexpr, DROP: tl.constexpr, CENTRED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, WIDTH)
    gain = tl.load(weight + column, mask=column < D, other=0.0).to(tl.float32)[None, :]
    to_gain = tl.zeros([ROWS, WIDTH], tl.float32)
    to_bias = tl.zeros([ROWS, WIDTH], tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(N, ROWS), tl.num_programs(0)):
        row = tile * ROWS + tl.arange(0, ROWS)
        inside = (row < N)[:, None] & (column < D)[None, :]
        entry = row[:, None] * D + column[None, :]
        value = tl.load(sums + entry, mask=inside, other=0.0).to(tl.float32)
        slope = tl.load(gradient + entry, mask=inside, other=0.0).to(tl.float32)
        inverse = tl.load(inverses + row, mask=row < N, other=0.0)[:, None]
        if CENTRED:
            value -= tl.load(means + row, mask=row < N, other=0.0)[:, None]
        normed = tl.where(inside, value * inverse, 0.0)
        to_gain += slope * normed
        slope_in = slope * gain
        change = slope_in - normed * (tl.sum(slope_in * normed, axis=1) / D)[:, None]
        if CENTRED:
            to_bias += slope
            change -= (tl.sum(slope_in, axis=1) / D)[:, None]
        change *= inverse
        tl.store(to_x + entry, change.to(to_x.dtype.element_ty), mask=inside)
        if DROP:
            passed = tl.where(kept(entry, tl.load(seed), site, threshold), change * scale, 0.0)
            tl.store(to_branch + entry, passed.to(to_branch.dtype.element_ty), mask=inside)
    place = tl.program_id(0) * D + column
    tl.store(to_weights + place, tl.sum(to_gain, axis=0), mask=column < D)
    if CENTRED:
        tl.store(to_weights + tl.num_programs(0) * D + place, tl.sum(to_bias, axis=0), mask=column < D)


def _tile(width: int) -> dict[str, int]:
    """Return the number of rows that a program computes at a time, and its number of warps."""
    padded = triton.next_power_of_2(width)
    return {"WIDTH": padded, "ROWS": max(1, 1024 // padded), "num_warps": 2 if padded <= 1024 else 8}


def _run_norm(
    x: Tensor,
    branch: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    eps: float,
    drop: Drop | None,
    *,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the norm and, with `keep`, what its backward pass needs: the sums, their means and inverse deviations."""
    x, (N, D), tile = x.contiguous(), x.shape, _tile(x.size(1))
    branch = None if branch is None else branch.contiguous()
    sums = x if branch is None or not keep else torch.empty_like(x)
    out = torch.empty_like(x)
    means, inverses = torch.empty(2, N if keep else 0, dtype=torch.float32, device=x.device)
    _norm_forward[(triton.cdiv(N, tile["ROWS"]),)](
        x, branch, weight, bias, sums, out, means, inverses, *drop_arguments(drop), eps, N,
        D=D, ADD=branch is not None, DROP=drop is not None, CENTRED=bias is not None, KEEP=keep, **tile,
    )  # fmt: skip
    return out, sums, means, inverses


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, branch: Tensor | None, weight: Tensor, bias: Tensor | None, eps: float, drop: Drop | None
    ) -> Tensor:
        out, sums, means, inverses = _run_norm(x, branch, weight, bias, eps, drop, keep=True)
        ctx.save_for_backward(sums, weight, means, inverses)
        ctx.drop, ctx.centred, ctx.added = drop, bias is not None, branch is not None
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        sums, weight, means, inverses = ctx.saved_tensors
        drop, (N, D), tile = ctx.drop, sums.shape, _tile(sums.size(1))
        programs = min(PROGRAMS, triton.cdiv(N, tile["ROWS"]))
        to_x = torch.empty_like(sums)
        to_branch = torch.empty_like(sums) if drop is not None else to_x
        to_weights = torch.empty(1 + ctx.centred, programs, D, dtype=torch.float32, device=sums.device)
        noise = drop_arguments(drop)
        _norm_backward[(programs,)](
            gradient.contiguous(), sums, weight, means, inverses, to_x, to_branch, to_weights, *noise, N,
            D=D, DROP=drop is not None, CENTRED=ctx.centred, **tile,
        )  # fmt: skip
        totals = sum_rows(to_weights)
        to_bias = totals[1] if ctx.centred else None
        return to_x, to_branch if ctx.added else None, totals[0], to_bias, None, None

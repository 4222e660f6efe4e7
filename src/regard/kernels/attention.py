"""Attention over flat batches, several short sentences per tile.

With every `AttentionMask` (own sentence, causal, window, encoder-decoder) a query sees one unbroken range of keys, and a key
is seen by one unbroken range of queries. Both ranges only move forward. So a tile of queries needs the keys from the start
of its first range to the end of its last range, of any sentences, and a comparison masks the rest.

Shapes: N query tokens, M key tokens, H heads, K width of a key, V width of a value.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels import Drop, Ranges
from regard.kernels.common import drop_arguments, kept
from regard.kernels.split_columns import empty_columns_like

LOG2_E = 1.4426950408889634


def attend_tiled(q_NHK: Tensor, k_MHK: Tensor, v_MHV: Tensor, ranges: Ranges, drop: Drop | None = None) -> Tensor:
    """Return softmax(QKᵀ/√K) V over each query's range of keys: [N, H, V]. Zeros for a query that sees no key."""
    scale = q_NHK.size(-1) ** -0.5
    if all(x.size(-1) == tile_width(x.size(-1)) for x in (q_NHK, v_MHV)):
        return _Tiled.apply(q_NHK, k_MHK, v_MHV, ranges, drop, scale)
    wide = [F.pad(x, (0, tile_width(x.size(-1)) - x.size(-1))) for x in (q_NHK, k_MHK, v_MHV)]
    return _Tiled.apply(*wide, ranges, drop, scale)[:, :, : v_MHV.size(-1)]


def tile_width(head_width: int) -> int:
    """Return the width of a head's tile: a power of two, at least what tensor cores need. The rest is filled with zeros."""
    return max(16, triton.next_power_of_2(head_width))


@triton.jit
def _weight_kept(i, j, head, N, seed, site, threshold):
    """Return whether dropout keeps the weight of query i for key j."""
    return kept((head * N + i).to(tl.uint32) * 0x85EBCA6B + j.to(tl.uint32), tl.load(seed), site, threshold)


@triton.jit(do_not_specialize=["site"])
def _forward(
    q, k, v, out, lse, first_key, end_key, q_row, q_head, k_row, k_head, v_row, v_head, N, scale,
    seed, site, threshold, gain, DROP: tl.constexpr,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    i = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    real = i < N
    first = tl.load(first_key + i, mask=real, other=2147483647)
    end = tl.load(end_key + i, mask=real, other=0)
    dk, dv = tl.arange(0, K), tl.arange(0, V)
    queries = tl.load(q + head * q_head + i[:, None] * q_row + dk[None, :], mask=real[:, None], other=0.0)
    peak = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    mean = tl.zeros([QUERIES, V], tl.float32)
    last = tl.max(end, axis=0)
    for start in range(tl.min(first, axis=0), last, KEYS):
        j = start + tl.arange(0, KEYS)
        keys = tl.load(k + head * k_head + j[None, :] * k_row + dk[:, None], mask=(j < last)[None, :], other=0.0)
        scores = tl.dot(queries, keys) * scale
        seen = (j[None, :] >= first[:, None]) & (j[None, :] < end[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        base = tl.where(higher > float("-inf"), higher, 0.0)
        p = tl.exp2(scores - base[:, None])
        fade = tl.exp2(peak - base)
        total = total * fade + tl.sum(p, axis=1)
        values = tl.load(v + head * v_head + j[:, None] * v_row + dv[None, :], mask=(j < last)[:, None], other=0.0)
        if DROP:
            p = tl.where(_weight_kept(i[:, None], j[None, :], head, N, seed, site, threshold), p * gain, 0.0)
        mean = tl.dot(p.to(values.dtype), values, mean * fade[:, None])
        peak = higher
    sees = total > 0
    mean = mean / tl.where(sees, total, 1.0)[:, None]
    tl.store(out + (i[:, None] * H + head) * V + dv[None, :], mean.to(out.dtype.element_ty), mask=real[:, None])
    tl.store(lse + head * N + i, tl.where(sees, peak + tl.log2(tl.where(sees, total, 1.0)), 0.0), mask=real)


@triton.jit(do_not_specialize=["site"])
def _backward_queries(
    q, k, v, out, lse, slope, delta, to_q, to_row, first_key, end_key, q_row, q_head, k_row, k_head, v_row, v_head, N, scale,
    seed, site, threshold, gain, DROP: tl.constexpr,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    i = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    real = i < N
    first = tl.load(first_key + i, mask=real, other=2147483647)
    end = tl.load(end_key + i, mask=real, other=0)
    dk, dv = tl.arange(0, K), tl.arange(0, V)
    queries = tl.load(q + head * q_head + i[:, None] * q_row + dk[None, :], mask=real[:, None], other=0.0)
    place = (i[:, None] * H + head) * V + dv[None, :]
    slopes = tl.load(slope + place, mask=real[:, None], other=0.0)
    outs = tl.load(out + place, mask=real[:, None], other=0.0)
    deltas = tl.sum(slopes.to(tl.float32) * outs.to(tl.float32), axis=1)
    tl.store(delta + head * N + i, deltas, mask=real)
    logs = tl.load(lse + head * N + i, mask=real, other=0.0)
    change = tl.zeros([QUERIES, K], tl.float32)
    last = tl.max(end, axis=0)
    for start in range(tl.min(first, axis=0), last, KEYS):
        j = start + tl.arange(0, KEYS)
        there = j < last
        keys = tl.load(k + head * k_head + j[:, None] * k_row + dk[None, :], mask=there[:, None], other=0.0)
        values = tl.load(v + head * v_head + j[:, None] * v_row + dv[None, :], mask=there[:, None], other=0.0)
        seen = (j[None, :] >= first[:, None]) & (j[None, :] < end[:, None])
        scores = tl.where(seen, tl.dot(queries, tl.trans(keys)) * scale, float("-inf"))
        p = tl.exp2(scores - logs[:, None])
        to_p = tl.dot(slopes, tl.trans(values))
        if DROP:
            to_p = tl.where(_weight_kept(i[:, None], j[None, :], head, N, seed, site, threshold), to_p * gain, 0.0)
        to_scores = p * (to_p - deltas[:, None])
        change = tl.dot(to_scores.to(keys.dtype), keys, change)
    change *= scale / 1.4426950408889634
    tl.store(to_q + i[:, None] * to_row + head * K + dk[None, :], change.to(to_q.dtype.element_ty), mask=real[:, None])


@triton.jit(do_not_specialize=["site"])
def _backward_keys(
    q, k, v, lse, slope, delta, to_k, to_v, to_k_row, to_v_row, first_key, end_key, first_query, end_query,
    q_row, q_head, k_row, k_head, v_row, v_head, N, M, scale,
    seed, site, threshold, gain, DROP: tl.constexpr,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    j = tl.program_id(0) * KEYS + tl.arange(0, KEYS)
    real = j < M
    dk, dv = tl.arange(0, K), tl.arange(0, V)
    keys = tl.load(k + head * k_head + j[:, None] * k_row + dk[None, :], mask=real[:, None], other=0.0)
    values = tl.load(v + head * v_head + j[:, None] * v_row + dv[None, :], mask=real[:, None], other=0.0)
    change_k = tl.zeros([KEYS, K], tl.float32)
    change_v = tl.zeros([KEYS, V], tl.float32)
    last = tl.max(tl.load(end_query + j, mask=real, other=0), axis=0)
    for start in range(tl.min(tl.load(first_query + j, mask=real, other=2147483647), axis=0), last, QUERIES):
        i = start + tl.arange(0, QUERIES)
        there = i < last
        queries = tl.load(q + head * q_head + i[:, None] * q_row + dk[None, :], mask=there[:, None], other=0.0)
        slopes = tl.load(slope + (i[:, None] * H + head) * V + dv[None, :], mask=there[:, None], other=0.0)
        first = tl.load(first_key + i, mask=there, other=2147483647)
        end = tl.load(end_key + i, mask=there, other=0)
        logs = tl.load(lse + head * N + i, mask=there, other=0.0)
        deltas = tl.load(delta + head * N + i, mask=there, other=0.0)
        seen = (j[:, None] >= first[None, :]) & (j[:, None] < end[None, :])
        scores = tl.where(seen, tl.dot(keys, tl.trans(queries)) * scale, float("-inf"))
        p = tl.exp2(scores - logs[None, :])
        to_p = tl.dot(values, tl.trans(slopes))
        dropped = p
        if DROP:
            stays = _weight_kept(i[None, :], j[:, None], head, N, seed, site, threshold)
            to_p = tl.where(stays, to_p * gain, 0.0)
            dropped = tl.where(stays, p * gain, 0.0)
        change_v = tl.dot(dropped.to(slopes.dtype), slopes, change_v)
        to_scores = p * (to_p - deltas[None, :])
        change_k = tl.dot(to_scores.to(queries.dtype), queries, change_k)
    change_k *= scale / 1.4426950408889634
    tl.store(
        to_k + j[:, None] * to_k_row + head * K + dk[None, :], change_k.to(to_k.dtype.element_ty), mask=real[:, None]
    )
    tl.store(
        to_v + j[:, None] * to_v_row + head * V + dv[None, :], change_v.to(to_v.dtype.element_ty), mask=real[:, None]
    )


# The fastest of ten settings on an H200, for heads of width 64 and sentences of 28 tokens on average.
FORWARD = {"QUERIES": 64, "KEYS": 64, "num_warps": 4, "num_stages": 3}
BACKWARD_QUERIES = {"QUERIES": 64, "KEYS": 32, "num_warps": 4, "num_stages": 2}
BACKWARD_KEYS = {"QUERIES": 32, "KEYS": 64, "num_warps": 4, "num_stages": 1}
WIDE = {"QUERIES": 32, "KEYS": 32, "num_warps": 4, "num_stages": 1}  # heads of width 256 fit only so


def _sizes(sizes: dict[str, int], *widths: int) -> dict[str, int]:
    return sizes if max(widths) <= 128 else WIDE


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, ranges: Ranges, drop: Drop | None, scale: float) -> Tensor:
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        (N, H, K), V = q.shape, v.size(-1)
        out = torch.empty(N, H, V, dtype=q.dtype, device=q.device)
        lse = torch.empty(H, N, dtype=torch.float32, device=q.device)
        sizes = _sizes(FORWARD, K, V)
        _forward[(triton.cdiv(N, sizes["QUERIES"]), H)](
            q, k, v, out, lse, ranges.first_key, ranges.end_key, *_strides(q, k, v), N, scale * LOG2_E,
            *drop_arguments(drop), DROP=drop is not None, H=H, K=K, V=V, **sizes,
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.ranges, ctx.drop, ctx.scale = ranges, drop, scale
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        (N, H, K), M, V = q.shape, k.size(0), v.size(-1)
        slope = slope.contiguous()
        to_q, to_k, to_v = empty_columns_like(q, k, v)
        delta = torch.empty_like(lse)
        strides, scale = _strides(q, k, v), ctx.scale * LOG2_E
        noise = drop_arguments(ctx.drop)
        sizes = _sizes(BACKWARD_QUERIES, K, V)
        _backward_queries[(triton.cdiv(N, sizes["QUERIES"]), H)](
            q, k, v, out, lse, slope, delta, to_q, to_q.stride(0), ctx.ranges.first_key, ctx.ranges.end_key,
            *strides, N, scale, *noise, DROP=ctx.drop is not None, H=H, K=K, V=V, **sizes,
        )  # fmt: skip
        sizes = _sizes(BACKWARD_KEYS, K, V)
        _backward_keys[(triton.cdiv(M, sizes["KEYS"]), H)](
            q, k, v, lse, slope, delta, to_k, to_v, to_k.stride(0), to_v.stride(0), *ctx.ranges,
            *strides, N, M, scale, *noise, DROP=ctx.drop is not None, H=H, K=K, V=V, **sizes,
        )  # fmt: skip
        return to_q, to_k, to_v, None, None, None


def _strides(*tensors: Tensor) -> list[int]:
    """Return the row and head strides of each tensor."""
    return [stride for tensor in tensors for stride in tensor.stride()[:2]]

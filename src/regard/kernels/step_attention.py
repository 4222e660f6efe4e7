"""Attention of one token per row, during a search on the device (`nn.decoder_pool`, which has the same in PyTorch).

A row reads the keys and values of its own past alone: `ancestors` says at which beam of each step they are. How many there
are is read on the device, so that one CUDA graph serves all steps.

Shapes: B groups of Q rows (the beams of a sentence), R = B * Q, H heads, K width of a key, V width of a value.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = 1.4426950408889634
# The fastest of 12 and of 36 settings on an H200, for heads of width 64.
PAST = {"STEPS": 16, "num_warps": 1}
MEMORY = {"KEYS": 16, "num_warps": 1, "num_stages": 3}
BEAMS = 16  # of a tile: what tensor cores need


@triton.jit
def _past(
    q, k, v, q_row, k_row, v_row, keys, values, ancestors, places, numbers, out, scale, window,
    Q: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, WINDOWED: tl.constexpr,
    KEY: tl.constexpr, VALUE: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    beam = row % Q
    place = tl.load(places + row // Q).to(tl.int64)
    position, steps = tl.load(numbers), tl.load(numbers + 1)
    dk, dv = tl.arange(0, KEY), tl.arange(0, VALUE)
    in_k, in_v = dk < K, dv < V
    query = tl.load(q + row * q_row + head * K + dk, mask=in_k, other=0.0).to(tl.float32) * scale
    key = tl.load(k + row * k_row + head * K + dk, mask=in_k, other=0.0)
    value = tl.load(v + row * v_row + head * V + dv, mask=in_v, other=0.0)
    first = place * steps * Q
    own = (first + position * Q + beam) * H + head
    tl.store(keys + own * K + dk, key, mask=in_k)
    tl.store(values + own * V + dv, value, mask=in_v)
    peak = tl.sum(query * key.to(tl.float32), axis=0)
    total = 1.0
    mean = value.to(tl.float32)
    begin = 0
    if WINDOWED:
        begin = tl.maximum(position - window, 0)
    for start in range(begin, position, STEPS):
        t = start + tl.arange(0, STEPS)
        there = t < position
        beams = t * 0
        if Q > 1:
            beams = tl.load(ancestors + (place * Q + beam) * steps + t, mask=there, other=0)
        slot = (first + t * Q + beams) * H + head
        mask_k, mask_v = there[:, None] & in_k[None, :], there[:, None] & in_v[None, :]
        past_k = tl.load(keys + slot[:, None] * K + dk[None, :], mask=mask_k, other=0.0).to(tl.float32)
        past_v = tl.load(values + slot[:, None] * V + dv[None, :], mask=mask_v, other=0.0).to(tl.float32)
        scores = tl.where(there, tl.sum(past_k * query[None, :], axis=1), float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=0))
        p = tl.exp2(scores - higher)
        fade = tl.exp2(peak - higher)
        total = total * fade + tl.sum(p, axis=0)
        mean = mean * fade + tl.sum(p[:, None] * past_v, axis=0)
        peak = higher
    tl.store(out + (row * H + head) * V + dv, (mean / total).to(out.dtype.element_ty), mask=in_v)


def attend_past(
    q_RHK: Tensor, k_RHK: Tensor, v_RHV: Tensor, keys: Tensor, values: Tensor, *,
    ancestors: Tensor, places: Tensor, numbers: Tensor, beams: int, window: int | None,
) -> Tensor:  # fmt: skip
    """Write each row's key and value to its place, and return its attention to its past and itself: [R, H * V]."""
    (R, H, K), V = q_RHK.shape, v_RHV.size(-1)
    out = torch.empty(R, H * V, dtype=v_RHV.dtype, device=v_RHV.device)
    assert all(x.stride(2) == 1 and x.stride(1) == x.size(2) for x in (q_RHK, k_RHK, v_RHV))
    _past[(R, H)](
        q_RHK, k_RHK, v_RHV, q_RHK.stride(0), k_RHK.stride(0), v_RHV.stride(0), keys, values, ancestors, places, numbers,
        out, K**-0.5 * LOG2_E, 0 if window is None else window, Q=beams, H=H, K=K, V=V, WINDOWED=window is not None,
        KEY=triton.next_power_of_2(K), VALUE=triton.next_power_of_2(V), **PAST,
    )  # fmt: skip
    return out


@triton.jit
def _memory(
    q, q_row, memory, memory_row, offsets, places, out, scale,
    Q: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    KEY: tl.constexpr, VALUE: tl.constexpr, BEAMS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    group, head = tl.program_id(0), tl.program_id(1)
    place = tl.load(places + group)
    begin, end = tl.load(offsets + place), tl.load(offsets + place + 1)
    beam = tl.program_id(2) * BEAMS + tl.arange(0, BEAMS)
    real = beam < Q
    row = group * Q + beam
    dk, dv = tl.arange(0, KEY), tl.arange(0, VALUE)
    in_k, in_v = dk < K, dv < V
    queries = tl.load(q + row[:, None] * q_row + head * K + dk[None, :], mask=real[:, None] & in_k[None, :], other=0.0)
    peak = tl.full([BEAMS], float("-inf"), tl.float32)
    total = tl.zeros([BEAMS], tl.float32)
    mean = tl.zeros([BEAMS, VALUE], tl.float32)
    for start in range(begin, end, KEYS):
        j = start + tl.arange(0, KEYS)
        there, token = j < end, j.to(tl.int64) * memory_row
        keys = tl.load(memory + token[None, :] + head * K + dk[:, None], mask=there[None, :] & in_k[:, None], other=0.0)
        values = tl.load(
            memory + token[:, None] + H * K + head * V + dv[None, :], mask=there[:, None] & in_v[None, :], other=0.0
        )
        scores = tl.dot(queries, keys, input_precision="ieee") * scale
        scores = tl.where(there[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        p = tl.exp2(scores - higher[:, None])
        fade = tl.exp2(peak - higher)
        total = total * fade + tl.sum(p, axis=1)
        mean = tl.dot(p.to(values.dtype), values, mean * fade[:, None], input_precision="ieee")
        peak = higher
    mean = mean / tl.where(total > 0, total, 1.0)[:, None]
    mask = real[:, None] & in_v[None, :]
    tl.store(out + (row[:, None] * H + head) * V + dv[None, :], mean.to(out.dtype.element_ty), mask=mask)


def attend_memory(
    q_RHK: Tensor, memory_MW: Tensor, *, offsets: Tensor, places: Tensor, beams: int, value_width: int
) -> Tensor:
    """Return the attention of each row to the keys of its sentence: [R, H * V]. Zeros for a sentence without tokens.

    `memory` has for each token the keys of all heads, then their values.
    """
    (R, H, K), V = q_RHK.shape, value_width
    out = torch.empty(R, H * V, dtype=q_RHK.dtype, device=q_RHK.device)
    assert q_RHK.stride(2) == 1 and q_RHK.stride(1) == K and memory_MW.stride(1) == 1
    _memory[(R // beams, H, triton.cdiv(beams, BEAMS))](
        q_RHK, q_RHK.stride(0), memory_MW, memory_MW.stride(0), offsets, places, out, K**-0.5 * LOG2_E,
        Q=beams, H=H, K=K, V=V, KEY=max(16, triton.next_power_of_2(K)), VALUE=max(16, triton.next_power_of_2(V)),
        BEAMS=BEAMS, **MEMORY,
    )  # fmt: skip
    return out

"""Label-smoothed cross-entropy of logits, which are overwritten with their gradient: two reads and one write of the logits.

Each lane of a program keeps its own maximum and sum, so that lanes wait for each other only at the end of a row.

Shapes: N tokens, V vocabulary.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LANES, WARPS = 512, 16  # of a program
BYTES = 16  # of logits per lane at a time: what a thread loads at once, so that a lane is one thread
ALIGNED = 16  # logits: if rows begin at multiples of this, a lane's logits are read in one load

LOG2_E = tl.constexpr(1.4426950408889634)
NOTHING = tl.constexpr(-1e30)  # less than any logit, but finite: the difference of two is not NaN


@triton.jit
def _take_in(z, peak, sums):
    """Return the maximum and the sum of 2^(z - maximum) of each lane, updated with more logits."""
    higher = tl.maximum(peak, tl.max(z, axis=1))
    return higher, sums * tl.exp2(peak - higher) + tl.sum(tl.exp2(z - higher[:, None]), axis=1)


@triton.jit
def _slope(z, lse, column, label, smoothing, V):
    """Return the gradient of the loss with respect to these logits."""
    return tl.exp2(z - lse) - smoothing / V - tl.where(column == label, 1 - smoothing, 0.0)


@triton.jit
def _cross_entropy_kernel(
    logits, labels, losses, V, stride, smoothing, GRADIENT: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    label = tl.load(labels + row).to(tl.int32)
    right = tl.load(logits + tl.maximum(label, 0)).to(tl.float32)  # read before it is overwritten
    real = label >= 0
    column = tl.arange(0, LANES)[:, None] * EACH + tl.arange(0, EACH)[None, :]
    whole = V // (LANES * EACH) * (LANES * EACH)  # logits in full blocks
    rest = whole + column < V
    peak = tl.full([LANES], NOTHING, tl.float32)
    sums = tl.zeros([LANES], tl.float32)
    total = tl.zeros([LANES, EACH], tl.float32)  # not every Triton version compiles sums of sums in a loop
    for start in range(0, whole, LANES * EACH):
        z = tl.load(logits + start + column).to(tl.float32)
        total += z
        peak, sums = _take_in(z * LOG2_E, peak, sums)
    if whole < V:
        z = tl.load(logits + whole + column, mask=rest, other=0.0).to(tl.float32)
        total += z
        peak, sums = _take_in(tl.where(rest, z * LOG2_E, NOTHING), peak, sums)
    highest = tl.max(peak, axis=0)
    lse = highest + tl.log2(tl.sum(sums * tl.exp2(peak - highest), axis=0))
    loss = lse / LOG2_E - (1 - smoothing) * right - smoothing / V * tl.sum(tl.sum(total, axis=1), axis=0)
    tl.store(losses + row, tl.where(real, loss, 0.0))
    if GRADIENT:
        for start in range(0, whole, LANES * EACH):
            z = tl.load(logits + start + column).to(tl.float32) * LOG2_E
            slope = tl.where(real, _slope(z, lse, start + column, label, smoothing, V), 0.0)
            tl.store(logits + start + column, slope.to(logits.dtype.element_ty))
        if whole < V:
            z = tl.load(logits + whole + column, mask=rest, other=0.0).to(tl.float32) * LOG2_E
            slope = tl.where(real, _slope(z, lse, whole + column, label, smoothing, V), 0.0)
            tl.store(logits + whole + column, slope.to(logits.dtype.element_ty), mask=rest)


def empty_logits(like_ND: Tensor, vocabulary: int) -> Tensor:
    """Return an empty tensor for logits, [N, V], with rows aligned for the kernel."""
    wide = triton.cdiv(vocabulary, ALIGNED) * ALIGNED
    return like_ND.new_empty(like_ND.size(0), wide)[:, :vocabulary]


def cross_entropy_(logits_NV: Tensor, labels_N: Tensor, *, smoothing: float, gradient: bool) -> Tensor:
    """Return the loss of each token, 0 if its label is negative: [N]. With `gradient`, overwrite logits with theirs."""
    losses = torch.empty(logits_NV.size(0), dtype=torch.float32, device=logits_NV.device)
    _cross_entropy_kernel[(logits_NV.size(0),)](
        logits_NV, labels_N, losses, logits_NV.size(1), logits_NV.stride(0), smoothing,
        GRADIENT=gradient, LANES=LANES, EACH=BYTES // logits_NV.element_size(), num_warps=WARPS,
    )  # fmt: skip
    return losses

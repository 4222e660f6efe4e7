"""Label-smoothed cross-entropy of logits, and its gradient in their place: two reads and one write of the logits.

Shapes: N tokens, V vocabulary.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 4096, 16  # logits a program holds at a time, and the warps that share them


@triton.jit
def _cross_entropy_kernel(logits, labels, losses, V, stride, smoothing, GRADIENT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    label = tl.load(labels + row).to(tl.int32)
    right = tl.load(logits + tl.maximum(label, 0)).to(tl.float32)  # before anything is overwritten
    column = tl.arange(0, BLOCK)
    peak = float("-inf")
    sums = tl.zeros([BLOCK], tl.float32)  # of exp(z - peak), a lane each
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, V, BLOCK):
        inside = start + column < V
        z = tl.load(logits + start + column, mask=inside, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(peak, tl.max(z, axis=0))
        sums = sums * tl.exp(peak - higher) + tl.exp(z - higher)
        total += tl.where(inside, z, 0.0)
        peak = higher
    lse = peak + tl.log(tl.sum(sums, axis=0))
    real = label >= 0
    loss = (1 - smoothing) * (lse - right) + smoothing * (lse - tl.sum(total, axis=0) / V)
    tl.store(losses + row, tl.where(real, loss, 0.0))
    if GRADIENT:
        for start in range(0, V, BLOCK):
            inside = start + column < V
            z = tl.load(logits + start + column, mask=inside, other=float("-inf")).to(tl.float32)
            slope = tl.exp(z - lse) - smoothing / V - tl.where(start + column == label, 1 - smoothing, 0.0)
            tl.store(logits + start + column, tl.where(real, slope, 0.0).to(logits.dtype.element_ty), mask=inside)


def cross_entropy_(logits_NV: Tensor, labels_N: Tensor, *, smoothing: float, gradient: bool) -> Tensor:
    """The loss of each token, 0 where its label is negative: [N]. With `gradient`, the logits become their gradient."""
    losses = torch.empty(logits_NV.size(0), dtype=torch.float32, device=logits_NV.device)
    _cross_entropy_kernel[(logits_NV.size(0),)](
        logits_NV, labels_N, losses, logits_NV.size(1), logits_NV.stride(0), smoothing,
        GRADIENT=gradient, BLOCK=min(BLOCK, triton.next_power_of_2(logits_NV.size(1))), num_warps=WARPS,
    )  # fmt: skip
    return losses

"""Attention restricted to a window, by blocks: the cost grows with N·window, not with N².

Each block of tokens attends to itself and to its neighbours. A block may hold the end of one sentence and the start of the
next: the ranges of `AttentionMask` keep them apart, and exclude keys outside the window or in the future.

Shapes: N tokens, H heads, K width of a key, V of a value; C tokens per block, G blocks, S = 2C or 3C keys per block.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels import Ranges

SMALLEST_BLOCK = 32

Inner = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # attention of blocks: queries, keys, values and bias


def block_size(window: int) -> int:
    """Return the number of tokens per block: at least the window, so that it ends within the next block."""
    return max(window, SMALLEST_BLOCK)


def attend_banded(
    q_NHK: Tensor, k_NHK: Tensor, v_NHV: Tensor, ranges: Ranges, window: int, *, causal: bool, inner: Inner
) -> Tensor:
    """Return the attention of each token within its range, which must lie within the window: [N, H, V]."""
    N, C = q_NHK.size(0), block_size(window)
    behind = 1 if causal else 2  # blocks of keys after the previous block
    G = -(-N // C)
    q_GHCK = F.pad(q_NHK, (0, 0, 0, 0, 0, G * C - N)).unflatten(0, (G, C)).transpose(1, 2)
    k_GHSK, v_GHSV = (_neighbourhoods(x, G, C, behind) for x in (k_NHK, v_NHV))
    j_GS = (torch.arange(G, device=q_NHK.device)[:, None] - 1) * C + torch.arange((1 + behind) * C, device=q_NHK.device)
    first, end = (
        F.pad(x, (0, G * C - N), value=fill).view(G, C, 1) for x, fill in ((ranges.first_key, -C), (ranges.end_key, N))
    )
    seen_GCS = (j_GS[:, None] >= first) & (j_GS[:, None] < end)  # padding sees all, for a finite softmax
    bias = torch.zeros(seen_GCS.shape, dtype=q_NHK.dtype, device=q_NHK.device).masked_fill_(~seen_GCS, float("-inf"))
    out_GHCV = inner(q_GHCK, k_GHSK, v_GHSV, bias[:, None])
    return out_GHCV.transpose(1, 2).flatten(0, 1)[:N]


def _neighbourhoods(x_NHK: Tensor, G: int, C: int, behind: int) -> Tensor:
    """Return for each block the tokens of the previous block, its own and, if `behind` is 2, the next: [G, H, S, K]."""
    padded = F.pad(x_NHK, (0, 0, 0, 0, C, (G + behind - 1) * C - x_NHK.size(0)))
    return padded.unfold(0, (1 + behind) * C, C).permute(0, 1, 3, 2)

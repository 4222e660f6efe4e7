"""A solution of the exercise multi_head."""

import math

import torch
from torch import Tensor


def split_heads(x: Tensor, h: int) -> Tensor:
    """Return [B, h, n, d_model / h] for x [B, n, d_model]: the first columns are the first head."""
    return x.unflatten(-1, (h, -1)).transpose(1, 2)


def join_heads(heads: Tensor) -> Tensor:
    """Return [B, n, d_model] for heads [B, h, n, d_model / h]: what split_heads has split."""
    return heads.transpose(1, 2).flatten(2)


def multi_head(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor, h: int, mask: Tensor) -> Tensor:
    """Return Concat(head_1, ..., head_h) W^O for x [B, n, d_model] and a mask [B, n, n]; x W_Q are the queries."""
    Q, K, V = (split_heads(x @ W, h) for W in (W_Q, W_K, W_V))
    scores = Q @ K.mT / math.sqrt(Q.size(-1))
    weights = torch.softmax(scores.masked_fill(~mask[:, None], -math.inf), dim=-1)
    return join_heads(weights @ V) @ W_O

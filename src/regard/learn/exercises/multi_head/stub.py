"""What the exercise multi_head starts from."""

import math

import torch
from torch import Tensor


def split_heads(x: Tensor, h: int) -> Tensor:
    """Return [B, h, n, d_model / h] for x [B, n, d_model]: the first columns are the first head."""
    raise NotImplementedError


def join_heads(heads: Tensor) -> Tensor:
    """Return [B, n, d_model] for heads [B, h, n, d_model / h]: what split_heads has split."""
    raise NotImplementedError


def multi_head(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor, h: int, mask: Tensor) -> Tensor:
    """Return Concat(head_1, ..., head_h) W^O for x [B, n, d_model] and a mask [B, n, n]; x W_Q are the queries."""
    raise NotImplementedError

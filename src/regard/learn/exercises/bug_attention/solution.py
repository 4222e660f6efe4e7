"""A solution of the exercise bug_attention."""

import math

from torch import Tensor


def linear(x: Tensor, W: Tensor, b: Tensor) -> Tensor:
    """Return x W + b."""
    return x @ W + b


def heads_of(x: Tensor, h: int) -> Tensor:
    """Return [B, h, n, d_k] for x [B, n, d_model]."""
    B, n, d_model = x.shape
    return x.view(B, n, h, d_model // h).transpose(1, 2)


def attention_weights(Q: Tensor, K: Tensor, mask: Tensor) -> Tensor:
    """Return how much each query attends to each key. Where the mask is False, it may not."""
    scores = Q @ K.mT / math.sqrt(K.size(-1))
    return scores.masked_fill(~mask, -math.inf).softmax(dim=-1)


def self_attention(x: Tensor, parameters: dict[str, Tensor], h: int, mask: Tensor) -> Tensor:
    """Return multi-head self-attention of x [B, n, d_model] under a mask [B, n, n]."""
    Q, K, V = (heads_of(linear(x, parameters[f"W_{one}"], parameters[f"b_{one}"]), h) for one in "QKV")
    weights = attention_weights(Q, K, mask[:, None])
    joined = (weights @ V).transpose(1, 2).reshape(x.shape)
    return linear(joined, parameters["W_O"], parameters["b_O"])

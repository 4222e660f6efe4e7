"""A solution of the exercise attention."""

import math

import torch
from torch import Tensor


def attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return softmax(Q Kᵀ / √d_k) V. Where the mask is False, a query may not attend to a key."""
    scores = Q @ K.mT / math.sqrt(Q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.softmax(scores, dim=-1) @ V

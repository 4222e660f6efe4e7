"""What the exercise attention starts from."""

import math

import torch
from torch import Tensor


def attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return softmax(Q Kᵀ / √d_k) V. Where the mask is False, a query may not attend to a key."""
    raise NotImplementedError

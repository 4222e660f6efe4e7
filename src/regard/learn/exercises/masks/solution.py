"""A solution of the exercise masks."""

import torch
from torch import Tensor


def causal_mask(n: int) -> Tensor:
    """Return [n, n]: True where a position (row) may attend to a position (column), itself or an earlier one."""
    return torch.ones(n, n, dtype=torch.bool).tril()


def padding_mask(ids: Tensor, pad: int) -> Tensor:
    """Return [B, 1, n] for ids [B, n]: True for keys that are no padding."""
    return (ids != pad)[:, None, :]


def decoder_mask(ids: Tensor, pad: int) -> Tensor:
    """Return [B, n, n]: True where the decoder may attend, neither to later positions nor to padding."""
    return padding_mask(ids, pad) & causal_mask(ids.size(1))

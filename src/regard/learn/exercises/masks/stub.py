"""What the exercise masks starts from."""

import torch
from torch import Tensor


def causal_mask(n: int) -> Tensor:
    """Return [n, n]: True where a position (row) may attend to a position (column), itself or an earlier one."""
    raise NotImplementedError


def padding_mask(ids: Tensor, pad: int) -> Tensor:
    """Return [B, 1, n] for ids [B, n]: True for keys that are no padding."""
    raise NotImplementedError


def decoder_mask(ids: Tensor, pad: int) -> Tensor:
    """Return [B, n, n]: True where the decoder may attend, neither to later positions nor to padding."""
    raise NotImplementedError

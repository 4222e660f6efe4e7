"""A solution of the exercise positions."""

import torch
from torch import Tensor


def positional_encoding(length: int, d_model: int) -> Tensor:
    """Return the sinusoids of section 3.5: [length, d_model]."""
    pos = torch.arange(length, dtype=torch.float64)[:, None]
    angles = pos / 10000 ** (torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()

"""A solution of the exercise shifted_positions."""

import math

import torch
from torch import Tensor


def shift_matrix(k: int, d_model: int) -> Tensor:
    """Return the matrix M, [d_model, d_model] of float64, with PE(pos + k) = M PE(pos) for every pos."""
    M = torch.zeros(d_model, d_model, dtype=torch.float64)
    for two_i in range(0, d_model, 2):
        angle = k / 10000 ** (two_i / d_model)
        # sin(a + b) = cos b sin a + sin b cos a, and cos(a + b) = cos b cos a - sin b sin a.
        M[two_i, two_i] = M[two_i + 1, two_i + 1] = math.cos(angle)
        M[two_i, two_i + 1] = math.sin(angle)
        M[two_i + 1, two_i] = -math.sin(angle)
    return M

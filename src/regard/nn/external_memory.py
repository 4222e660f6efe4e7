"""How the heads of a Neural Turing Machine address, read and write its memory (Graves et al. 2014, section 3).

A head has a weight per location of the memory: the content of each location is compared with a key, the result is mixed with
the weights of the step before, shifted by at most one location, and sharpened. All of it is differentiable. Functions take
all heads of a batch at once.

Shapes: B sequences, H heads, N locations, M width of a location.
"""

from __future__ import annotations

import torch
from torch import Tensor

SHIFTS = (-1, 0, 1)  # by how many locations a head may move in one step
SMALLEST = 1e-8  # keeps the logarithm of an empty weight finite


def content_weights(memory_BNM: Tensor, key_BHM: Tensor, strength_BH: Tensor, *, smallest_norm: float) -> Tensor:
    """Return the softmax over locations of strength times cosine similarity to the key (equations 5 and 6): [B, H, N].

    Locations with a norm below `smallest_norm` count as nearly empty: their similarity to any key is nearly 0.
    """
    scale_BH1 = (strength_BH / (key_BHM.norm(dim=-1) + SMALLEST))[..., None]
    products_BHN = torch.bmm(key_BHM * scale_BH1, memory_BNM.mT)
    norms_BN = (memory_BNM.square().sum(dim=-1) + smallest_norm**2).sqrt()
    return (products_BHN / norms_BN[:, None]).softmax(dim=-1)


def interpolate(before_BHN: Tensor, content_BHN: Tensor, gate_BH: Tensor) -> Tensor:
    """Return the weights of the step before where the gate is 0, and those by content where it is 1 (equation 7)."""
    return torch.lerp(before_BHN, content_BHN, gate_BH[..., None])


def shift(weights_BHN: Tensor, shares_BHS: Tensor) -> Tensor:
    """Return the weights moved by each of SHIFTS, in these shares, around the ends of the memory (equation 8)."""
    circular_BHN = torch.cat([weights_BHN[..., -1:], weights_BHN, weights_BHN[..., :1]], dim=-1)
    # Window i holds locations i - 1, i and i + 1; what moves by +1 to location i was at i - 1.
    windows_BHNS = circular_BHN.unfold(-1, len(SHIFTS), 1)
    return (windows_BHNS * shares_BHS.flip(-1)[:, :, None]).sum(dim=-1)


def sharpen(weights_BHN: Tensor, power_BH: Tensor) -> Tensor:
    """Return the weights raised to a power, divided by their sum (equation 9)."""
    return ((weights_BHN + SMALLEST).log() * power_BH[..., None]).softmax(dim=-1)


def read(memory_BNM: Tensor, weights_BHN: Tensor) -> Tensor:
    """Return the mean of the memory under each head's weights (equation 2): [B, H, M]."""
    return torch.bmm(weights_BHN, memory_BNM)


def write(memory_BNM: Tensor, weights_BHN: Tensor, erase_BHM: Tensor, add_BHM: Tensor) -> Tensor:
    """Return the memory after all heads have erased, and then all heads have added (equations 3 and 4): [B, N, M]."""
    for weights_BN, erase_BM in zip(weights_BHN.unbind(1), erase_BHM.unbind(1), strict=True):
        erased_BNM = torch.bmm(weights_BN[:, :, None], erase_BM[:, None])
        memory_BNM = torch.addcmul(memory_BNM, memory_BNM, erased_BNM, value=-1)
    return torch.baddbmm(memory_BNM, weights_BHN.mT, add_BHM)

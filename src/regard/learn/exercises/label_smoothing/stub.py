"""What the exercise label_smoothing starts from."""

import torch
from torch import Tensor


def smoothed_targets(labels: Tensor, V: int, epsilon: float) -> Tensor:
    """Return the distribution that each label [N] stands for: [N, V]."""
    raise NotImplementedError


def smoothed_loss(logits: Tensor, labels: Tensor, epsilon: float, pad: int) -> Tensor:
    """Return the cross-entropy of logits [N, V] with the smoothed labels [N], summed over labels that are no padding."""
    raise NotImplementedError

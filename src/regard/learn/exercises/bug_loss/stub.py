"""What the exercise bug_loss starts from."""

import torch
from torch import Tensor


def shifted_right(labels: Tensor, bos: int) -> Tensor:
    """Return the inputs of the decoder for labels [B, m]: bos, then all labels but the last."""
    return torch.cat([torch.full_like(labels[:, :1], bos), labels[:, :-1]], dim=1)


def target_distribution(labels: Tensor, V: int, epsilon: float) -> Tensor:
    """Return [..., V]: 1 - ε for the label, and ε shared by all other words (Szegedy et al. 2016)."""
    shared = torch.full((*labels.shape, V), epsilon / (V - 1))
    return shared + (1 - epsilon) * torch.nn.functional.one_hot(labels, V)


def loss_and_count(logits: Tensor, labels: Tensor, epsilon: float, pad: int) -> tuple[Tensor, int]:
    """Return the summed loss of logits [B, m, V], and how many labels it is the loss of."""
    targets = target_distribution(labels, logits.size(-1), epsilon)
    real = labels != pad
    losses = -(targets * logits.log_softmax(dim=-1)).sum(dim=-1)
    return losses[real].sum(), int(real.sum())


def perplexity(logits: Tensor, labels: Tensor, pad: int) -> float:
    """Return e to the loss per label, without smoothing."""
    total, count = loss_and_count(logits, labels, 0.0, pad)
    return float((total / count).exp())

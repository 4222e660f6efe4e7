"""One training step: micro-batches in, one change of the weights out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from regard.config import TrainConfig
from regard.data.loader import Batch, to_device
from regard.models.base import Seq2Seq
from regard.nn.device import autocast
from regard.training.loss import sequence_loss


@dataclass(frozen=True)
class StepResult:
    """What a step cost."""

    loss: float  # summed over target tokens
    tokens: int
    gradient_norm: float  # before clipping

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam as in section 5.3, its update fused into one pass."""
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    decay = config.weight_decay
    return kind(model.parameters(), lr=0.0, betas=config.betas, eps=config.eps, weight_decay=decay, fused=True)


def training_step(
    model: Seq2Seq,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Batch],
    config: TrainConfig,
    *,
    rate: float,
    precision: torch.dtype = torch.float32,
) -> StepResult:
    """Gradient of the mean loss over the tokens of all micro-batches; applied unless something in it is not finite."""
    device = next(model.parameters()).device
    tokens = sum(batch.num_tokens for batch in batches)
    total = torch.zeros((), device=device)
    for batch in batches:
        with autocast(device, precision):
            loss = sequence_loss(model, to_device(batch, device), smoothing=config.label_smoothing)
        (loss.total / tokens).backward()
        total += loss.total.detach()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    result = StepResult(total.item(), tokens, norm.item())
    if result.finite:
        if 0 < config.clip_norm < result.gradient_norm:
            nn.utils.clip_grads_with_norm_(model.parameters(), config.clip_norm, norm)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return result

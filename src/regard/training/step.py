"""One training step: micro-batches in, one change of the weights out. Nothing here waits for the device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import TrainConfig
from regard.data.loader import Batch, to_device
from regard.models.base import Seq2Seq
from regard.nn.device import autocast
from regard.training.loss import sequence_loss
from regard.training.muon import Muon


@dataclass(frozen=True)
class StepResult:
    """What a step cost, still on the device: loss summed over target tokens, and gradient norm before clipping."""

    numbers: Tensor  # [2]
    tokens: int


@dataclass(frozen=True)
class StepCost:
    """What a step cost."""

    loss: float  # summed over target tokens
    tokens: int
    gradient_norm: float  # before clipping

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


def read(results: Sequence[StepResult]) -> list[StepCost]:
    """Waits for the device once, and reads the costs of several steps."""
    numbers = torch.stack([result.numbers for result in results]).tolist()
    return [StepCost(loss, one.tokens, norm) for (loss, norm), one in zip(numbers, results, strict=True)]


Optimizer = torch.optim.Optimizer | Muon


def make_optimizer(model: nn.Module, config: TrainConfig) -> Optimizer:
    """Adam as in section 5.3, its update fused into one pass, or one of its kin."""
    device = next(model.parameters()).device
    on_gpu = device.type == "cuda"  # where the rate is a number on the device, so that a recorded step can use it
    rate = torch.zeros((), device=device) if on_gpu else 0.0
    adam: dict[str, Any] = {"betas": config.betas, "eps": config.eps, "capturable": on_gpu}
    decay = config.weight_decay
    if config.optimizer == "muon":
        return Muon(model, rate=rate, momentum=config.momentum, weight_decay=decay, adam=adam)
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(model.parameters(), lr=rate, weight_decay=decay, fused=True, **adam)


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """The learning rate of the next step."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def training_step(
    model: Seq2Seq,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    config: TrainConfig,
    *,
    rate: float,
    precision: torch.dtype = torch.float32,
) -> StepResult:
    """Gradient of the mean loss over the tokens of all micro-batches; applied unless something in it is not finite."""
    device = next(model.parameters()).device
    tokens = sum(batch.num_tokens for batch in batches)
    set_rate(optimizer, rate)
    on_device = [to_device(batch, device) for batch in batches]
    return StepResult(change_weights(model, optimizer, on_device, tokens, config, precision), tokens)


def change_weights(
    model: Seq2Seq,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    tokens: int | Tensor,
    config: TrainConfig,
    precision: torch.dtype,
) -> Tensor:
    """The step itself, all of it work for the device: [summed loss, gradient norm]."""
    device = next(model.parameters()).device
    total = torch.zeros((), device=device)
    for batch in batches:
        with autocast(device, precision):
            loss = sequence_loss(model, batch, smoothing=config.label_smoothing)
        (loss.total / tokens).backward()
        total += loss.total.detach()
    norm = nn.utils.get_total_norm([one.grad for one in model.parameters() if one.grad is not None])
    numbers = torch.stack([total, norm])
    # A fused optimizer divides gradients by grad_scale, and changes nothing where found_inf is 1.
    optimizer.grad_scale = (norm / config.clip_norm).clamp(min=1) if config.clip_norm else None  # type: ignore[union-attr]
    optimizer.found_inf = (~numbers.isfinite().all()).float()  # type: ignore[union-attr]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return numbers

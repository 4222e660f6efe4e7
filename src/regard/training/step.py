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
from regard.errors import ConfigError
from regard.training.muon import Muon
from regard.training.spread import Spread


@dataclass(frozen=True)
class StepCost:
    """What a step cost."""

    loss: float  # summed over target tokens
    gradient_norm: float  # before clipping
    tokens: int

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


def read(numbers: Sequence[Tensor]) -> list[StepCost]:
    """Waits for the device once, and reads what several steps gave."""
    return [StepCost(loss, norm, round(tokens)) for loss, norm, tokens in torch.stack(list(numbers)).tolist()]


Optimizer = torch.optim.Optimizer | Muon


def make_optimizer(model: nn.Module, config: TrainConfig, *, sharded: bool = False) -> Optimizer:
    """Adam as in section 5.3, its update fused into one pass (where weights are whole), or one of its kin."""
    device = next(model.parameters()).device
    on_gpu = device.type == "cuda"  # where the rate is a number on the device, so that a recorded step can use it
    rate = torch.zeros((), device=device) if on_gpu else 0.0
    adam: dict[str, Any] = {"betas": config.betas, "eps": config.eps, "capturable": on_gpu}
    decay = config.weight_decay
    if config.optimizer == "muon":
        if sharded:
            raise ConfigError("muon needs whole matrices; use train.parallel=copies, or train.optimizer=adamw")
        return Muon(model, rate=rate, momentum=config.momentum, weight_decay=decay, adam=adam)
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(model.parameters(), lr=rate, weight_decay=decay, fused=not sharded, **adam)


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """The learning rate of the next step."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def training_step(
    spread: Spread,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    config: TrainConfig,
    *,
    rate: float,
    precision: torch.dtype = torch.float32,
) -> Tensor:
    """Gradient of the mean loss over the tokens of all micro-batches; applied unless something in it is not finite.

    What it cost stays on the device: [summed loss, gradient norm before clipping, target tokens].
    """
    device = next(spread.model.parameters()).device
    tokens = torch.tensor(sum(batch.num_tokens for batch in batches), dtype=torch.float32, device=device)
    set_rate(optimizer, rate)
    on_device = [to_device(batch, device) for batch in batches]
    return change_weights(spread, optimizer, on_device, tokens, config, precision)


def change_weights(
    spread: Spread,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    tokens: Tensor,
    config: TrainConfig,
    precision: torch.dtype,
) -> Tensor:
    """The step itself, all of it work for the device: [summed loss, gradient norm, target tokens]."""
    model, world = spread.model, spread.world
    world.add(tokens)
    total = torch.zeros((), device=tokens.device)
    for number, batch in enumerate(batches):
        model.noise.part(number * world.size + world.rank)
        total += spread.backward(batch, tokens, precision=precision, last=number == len(batches) - 1)
    gradients = [one.grad for one in model.parameters() if one.grad is not None]
    norm = spread.whole(nn.utils.get_total_norm(gradients))
    numbers = torch.stack([world.add(total), norm, tokens])
    _apply(optimizer, gradients, numbers, config, sharded=spread.sharded)
    optimizer.zero_grad(set_to_none=True)
    return numbers


def _apply(
    optimizer: Optimizer, gradients: list[Tensor], numbers: Tensor, config: TrainConfig, *, sharded: bool
) -> None:
    """Clips, and changes the weights unless loss or norm are not finite."""
    excess = (numbers[1] / config.clip_norm).clamp(min=1) if config.clip_norm else None
    finite = numbers.isfinite().all()
    if sharded:  # fused optimizers do not take a whole scale beside shards
        if excess is not None:
            for gradient in gradients:
                gradient.div_(excess)
        if bool(finite):
            optimizer.step()
        return
    # A fused optimizer divides gradients by grad_scale, and changes nothing where found_inf is 1.
    optimizer.grad_scale = excess  # type: ignore[union-attr]
    optimizer.found_inf = (~finite).float()  # type: ignore[union-attr]
    optimizer.step()

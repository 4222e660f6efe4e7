"""One training step: micro-batches in, one change of the weights out. Nothing here waits for the device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.config import TrainConfig
from regard.data.loader import Batch, to_device
from regard.errors import ConfigError
from regard.nn.device import own_blas
from regard.training.adam import Adam
from regard.training.data_parallel import DistributedModel
from regard.training.muon import Muon
from regard.training.threaded_gradients import Numbered
from regard.training.world import World


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


Optimizer = Adam | Muon


def make_optimizer(model: nn.Module, config: TrainConfig, *, sharded: bool = False) -> Optimizer:
    """Adam as in section 5.3, or one of its kin."""
    betas, eps, decay = config.betas, config.eps, config.weight_decay
    if config.optimizer == "muon":
        if sharded:
            raise ConfigError("muon needs whole matrices; use train.parallel=copies, or train.optimizer=adamw")
        return Muon(model, momentum=config.momentum, betas=betas, eps=eps, weight_decay=decay)
    decoupled = config.optimizer == "adamw"
    return Adam(model.parameters(), betas=betas, eps=eps, weight_decay=decay, decoupled=decoupled)


def training_step(
    distributed: DistributedModel,
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
    device = next(distributed.model.parameters()).device
    tokens = torch.tensor(sum(batch.num_tokens for batch in batches), dtype=torch.float32, device=device)
    optimizer.rate.fill_(rate)
    on_device = [to_device(batch, device) for batch in batches]
    return change_weights(distributed, optimizer, on_device, tokens, config, precision)


def change_weights(
    distributed: DistributedModel,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    tokens: Tensor,
    config: TrainConfig,
    precision: torch.dtype,
) -> Tensor:
    """The step itself, all of it work for the device: [summed loss, gradient norm, target tokens]."""
    model, world = distributed.model, distributed.world
    world.add(tokens)
    with own_blas(tokens.device, precision):
        total = distributed.backward(_numbered(batches, world), tokens, precision=precision)
    norm = distributed.whole(nn.utils.get_total_norm([one.grad for one in model.parameters() if one.grad is not None]))
    numbers = torch.stack([world.add(total), norm, tokens])
    excess = (norm / config.clip_norm).clamp(min=1) if config.clip_norm else None
    optimizer.step(excess=excess, skip=(~numbers.isfinite().all()).float())
    optimizer.forget_gradients()
    return numbers


def _numbered(batches: Sequence[Batch], world: World) -> list[Numbered]:
    """The batches with their numbers among all processes' of this step; on a CPU their halves, if all can be halved.

    By however many threads and processes, so that they make no difference to the noise, and all compute as many.
    """
    numbered = [(number * world.size + world.rank, batch) for number, batch in enumerate(batches)]
    if batches[0].labels.is_cuda:
        return numbered
    halves = [batch.halves() for batch in batches]
    if world.add(torch.tensor(sum(len(parts) < 2 for parts in halves))):
        return numbered
    of_batches = zip(numbered, halves, strict=True)
    return [(2 * number + half, part) for (number, _), parts in of_batches for half, part in enumerate(parts)]

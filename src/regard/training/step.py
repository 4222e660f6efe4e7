"""One training step: micro-batches in, one update of the weights out. With our optimizers nothing waits for the device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.config import TrainConfig
from regard.data.batch import Batch
from regard.errors import ConfigError
from regard.nn.device import own_blas
from regard.training.adapters import LowRankAdapters, trained_parameters
from regard.training.data_parallel import DistributedModel, Numbered
from regard.training.loss_scale import SMALLEST
from regard.training.optimizers import Adam, CapturableOptimizer, Muon
from regard.training.schedules import set_rate
from regard.training.world import World


@dataclass(frozen=True)
class StepResult:
    """Loss, gradient norm and size of one step."""

    loss: float  # summed over labels
    gradient_norm: float  # before clipping
    tokens: int
    loss_scale: float = 1.0  # of this step; 1 in other precisions than float16

    @property
    def finite(self) -> bool:
        """Whether the step updated the weights."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)

    @property
    def overflowed(self) -> bool:
        """Whether the step was skipped because of its loss scale, which is then halved. This happens now and then."""
        return not self.finite and math.isfinite(self.loss) and self.loss_scale > SMALLEST


def read(results: Sequence[Tensor]) -> list[StepResult]:
    """Read the results of several steps from the device, waiting for it once."""
    rows = torch.stack(list(results)).tolist()
    return [StepResult(loss, norm, round(tokens), scale) for loss, norm, tokens, scale in rows]


def make_optimizer(
    model: nn.Module, config: TrainConfig, *, sharded: bool = False, adapters: LowRankAdapters | None = None
) -> CapturableOptimizer:
    """Return the optimizer that the recipe names: Adam as in section 5.3, AdamW or Muon."""
    betas, eps, decay = config.betas, config.eps, config.weight_decay
    if config.optimizer == "muon":
        if sharded:
            raise ConfigError("muon needs complete matrices; use train.parallel=copies, or train.optimizer=adamw")
        if adapters is not None:
            raise ConfigError(
                "muon is for complete matrices, not for adapters; use train.optimizer=adamw with adapt=lora"
            )
        return Muon(model, momentum=config.momentum, betas=betas, eps=eps, weight_decay=decay)
    decoupled = config.optimizer == "adamw"
    return Adam(
        trained_parameters(model, adapters).values(), betas=betas, eps=eps, weight_decay=decay, decoupled=decoupled
    )


def training_step(
    distributed: DistributedModel,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    config: TrainConfig,
    *,
    rate: float | None = None,
    precision: torch.dtype = torch.float32,
) -> Tensor:
    """Update the weights by the gradient of the mean loss over all micro-batches, unless a number in it is not finite.

    `rate` is the learning rate; without it the optimizer's own stays. The result is on the device, for `read`: summed
    loss, gradient norm before clipping, number of labels, loss scale.
    """
    device = next(distributed.model.parameters()).device
    tokens = torch.tensor(sum(batch.num_tokens for batch in batches), dtype=torch.float32, device=device)
    if rate is not None:
        set_rate(optimizer, rate)
    on_device = [batch.to(device) for batch in batches]
    return change_weights(distributed, optimizer, on_device, tokens, config, precision)


def change_weights(
    distributed: DistributedModel,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    tokens: Tensor,
    config: TrainConfig,
    precision: torch.dtype,
) -> Tensor:
    """Take the step with batches on the device. Return what `training_step` returns."""
    model, world, loss_scale = distributed.model, distributed.world, distributed.loss_scale
    world.add(tokens)
    with own_blas(tokens.device, precision):
        total = distributed.backward(_numbered(batches, world), tokens, precision=precision)
    if distributed.adapters is not None:
        distributed.adapters.pass_back()
    trained = trained_parameters(model, distributed.adapters).values()
    gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
    scale = torch.ones_like(tokens) if loss_scale is None else loss_scale.scale.clone()
    norm = distributed.full_tensor(nn.utils.get_total_norm(gradients)) / scale
    result = torch.stack([world.add(total), norm, tokens, scale])
    finite = result.isfinite().all()
    if isinstance(optimizer, CapturableOptimizer):
        excess = (norm / config.clip_norm).clamp(min=1) if config.clip_norm else None
        if loss_scale is not None:
            excess = scale if excess is None else excess * scale
        optimizer.step(excess=excess, skip=(~finite).float())
    elif finite:
        # Reading `finite` waits for the device.
        if loss_scale is not None:
            torch._foreach_div_(gradients, scale)
        if config.clip_norm:
            nn.utils.clip_grads_with_norm_(model.parameters(), config.clip_norm, norm)
        optimizer.step()
    if loss_scale is not None:
        loss_scale.update(finite)
    if distributed.adapters is not None:
        distributed.adapters.merge()
    model.zero_grad()
    return result


def _numbered(batches: Sequence[Batch], world: World) -> list[Numbered]:
    """Return the batches with their numbers among those of all processes; on a CPU their halves, if all can be halved.

    This does not depend on the number of threads, and all processes compute equally many batches, so neither changes the
    dropout noise.
    """
    numbered = [(number * world.size + world.rank, batch) for number, batch in enumerate(batches)]
    if batches[0].labels.values.is_cuda:
        return numbered
    halves = [batch.halves() for batch in batches]
    if world.add(torch.tensor(sum(len(parts) < 2 for parts in halves))):
        return numbered
    of_batches = zip(numbered, halves, strict=True)
    return [(2 * number + half, part) for (number, _), parts in of_batches for half, part in enumerate(parts)]

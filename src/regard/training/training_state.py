"""Everything that training changes and a checkpoint holds: weights, optimizer, moving average, counters, random state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from regard.config import TrainConfig
from regard.errors import CheckpointError, ConfigError
from regard.run.checkpoint import Checkpoint, load_weights, model_weights
from regard.training.data_parallel import DistributedModel
from regard.training.optimizer_state import OptimizerState
from regard.training.schedules import Scheduler
from regard.training.step import make_optimizer
from regard.training.step_stats import Counters


class TrainingState:
    """Turns the state of training into a checkpoint and back. Checkpoints hold complete tensors, also of sharded models.

    The optimizer is the recipe's, unless the caller gives one.
    """

    def __init__(
        self,
        distributed: DistributedModel,
        config: TrainConfig,
        *,
        optimizer: Optimizer | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.distributed, self.model, self.config = distributed, distributed.model, config
        self.device = next(self.model.parameters()).device
        self.custom: OptimizerState | None = None  # of an optimizer that the caller made
        if optimizer is None:
            self.optimizer: Optimizer = make_optimizer(
                self.model, config, sharded=distributed.sharded, adapters=distributed.adapters
            )
        else:
            if distributed.sharded:
                raise ConfigError(
                    "train.parallel=shards replaces the parameters that the optimizer was made from; "
                    "use train.parallel=copies, or an optimizer that the recipe can name"
                )
            if distributed.adapters is not None:
                raise ConfigError("train.adapt=lora is for an optimizer that the recipe can name; leave out optimizer")
            self.optimizer = optimizer
            self.custom = OptimizerState(
                self.model, optimizer, scheduler if isinstance(scheduler, LRScheduler) else None
            )
        self.average = MovingAverage(model_weights(self.model), decay=config.ema) if config.ema else None
        self.counters = Counters()

    def begin(self) -> None:
        """Seed what a new run depends on."""
        # Where our kernels cannot run, dropout draws from the device's own generator.
        if self.device.type == "cuda":
            torch.cuda.manual_seed(self.config.seed)

    def after_step(self) -> None:
        """Update the moving average."""
        if self.average is not None:
            self.average.update(model_weights(self.model), step=self.counters.step)

    def weights(self) -> dict[str, Tensor]:
        """Return the weights to predict with: the moving average if there is one. All processes must call this."""
        own = model_weights(self.model) if self.average is None else self.average.average
        return self._full_tensors(own)

    def checkpoint(self) -> Checkpoint:
        """Return the complete state. All processes must call this."""
        counters: dict[str, Any] = vars(self.counters).copy()
        if self.custom is None:
            training = {
                f"optimizer/{name}/{key}": value
                for name, parameter in self.distributed.trained_parameters().items()
                for key, value in self.optimizer.state.get(parameter, {}).items()
            }
        else:
            counters["optimizer"], training = self.custom.pack()
        if self.distributed.adapters is not None:
            training |= self.distributed.adapters.state()
        if self.distributed.loss_scale is not None:
            training |= self.distributed.loss_scale.state()
        if self.average is not None:
            training |= {f"trained/{name}": weight for name, weight in model_weights(self.model).items()}
        if self.device.type == "cuda":
            training["generator/cuda"] = torch.cuda.get_rng_state(self.device)
        return Checkpoint(self.weights(), self._full_tensors(training), counters)

    def restore(self, checkpoint: Checkpoint, *, origin: str) -> None:
        """Return to the state in which the checkpoint was made."""
        counters = dict(checkpoint.counters)
        packed = counters.pop("optimizer", None)
        try:
            self.counters = msgspec.convert(vars(Counters(**counters)), Counters)
        except (TypeError, msgspec.ValidationError) as error:
            raise CheckpointError(f"{origin} was written by another version of regard: {error}") from error
        weights, training = checkpoint.weights, checkpoint.training
        if self.average is not None:
            self.load(weights, origin=origin)
            self.average = MovingAverage(model_weights(self.model), decay=self.config.ema)
            weights = {
                name.removeprefix("trained/"): training[name] for name in training if name.startswith("trained/")
            }
        self.load(weights, origin=origin)
        if self.distributed.adapters is not None:
            self.distributed.adapters.restore(training, origin=origin)
        if self.distributed.loss_scale is not None:
            self.distributed.loss_scale.restore(training, origin=origin)
        self._restore_optimizer(packed, training, origin=origin)
        if "generator/cuda" in training and self.device.type == "cuda":
            torch.cuda.set_rng_state(training["generator/cuda"], self.device)

    def _restore_optimizer(self, packed: Any, training: Mapping[str, Tensor], *, origin: str) -> None:
        if self.custom is not None:
            if not isinstance(packed, dict):
                raise CheckpointError(
                    f"{origin} was trained with the recipe's optimizer; resume it without another one"
                )
            self.custom.restore(packed, training, origin=origin)
            return
        if packed is not None:
            raise CheckpointError(f"{origin} was trained with an optimizer of the caller; resume it with Trainer")
        trained = self.distributed.trained_parameters()
        states = _optimizer_states(trained, training, origin=origin)
        for name, parameter in trained.items():
            if states[name]:
                self.optimizer.state[parameter] = {
                    key: self.distributed.distribute(value, like=parameter) for key, value in states[name].items()
                }

    def load(self, weights: Mapping[str, Tensor], *, origin: str) -> None:
        """Copy weights into the model."""
        own = model_weights(self.model)
        distributed = {
            name: self.distributed.distribute(weight, like=own[name]) if name in own else weight
            for name, weight in weights.items()
        }
        load_weights(self.model, distributed, origin=origin)

    def _full_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: self.distributed.full_tensor(tensor) for name, tensor in tensors.items()}


def _optimizer_states(
    trained: Mapping[str, Tensor], training: Mapping[str, Tensor], *, origin: str
) -> dict[str, dict[str, Tensor]]:
    """Return the optimizer's state of each parameter; refuse a part that is missing or of another shape."""
    states: dict[str, dict[str, Tensor]] = {}
    for name, parameter in trained.items():
        prefix = f"optimizer/{name}/"
        states[name] = {key.removeprefix(prefix): one for key, one in training.items() if key.startswith(prefix)}
        if any(one.shape not in (torch.Size(), parameter.shape) for one in states[name].values()):
            raise CheckpointError(f"{origin} does not fit this optimizer: the state of {name!r} has another shape")
    kept = {frozenset(state) for state in states.values() if state}
    for name, state in states.items():
        if state and any(frozenset(state) < complete for complete in kept):
            raise CheckpointError(f"{origin} does not fit this optimizer: a part of the state of {name!r} is missing")
    return states


class MovingAverage:
    """average ← decay · average + (1 - decay) · weights, with a smaller decay at first so that the start is forgotten."""

    def __init__(self, weights: Mapping[str, Tensor], *, decay: float) -> None:
        self.decay = decay
        self.average = {name: weight.detach().clone() for name, weight in weights.items()}

    @torch.no_grad()
    def update(self, weights: Mapping[str, Tensor], *, step: int) -> None:
        """Add the weights after a step."""
        decay = min(self.decay, (1 + step) / (10 + step))
        averages = list(self.average.values())
        torch._foreach_lerp_(averages, [weights[name].detach() for name in self.average], 1 - decay)

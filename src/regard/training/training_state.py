"""All that a run must remember to go on: weights, optimizer, moving average, counters, the GPU's generator."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import torch
from torch import Tensor, nn

from regard.config import TrainConfig
from regard.errors import CheckpointError
from regard.run.checkpoint import Checkpoint, load_weights, model_weights
from regard.training.averaging import MovingAverage
from regard.training.counters import Counters
from regard.training.data_parallel import DistributedModel
from regard.training.step import make_optimizer


class TrainingState:
    """What training changes, as a checkpoint and back. Checkpoints hold whole tensors, whoever held shards of them."""

    def __init__(self, distributed: DistributedModel, config: TrainConfig) -> None:
        self.distributed, self.model, self.config = distributed, distributed.model, config
        self.device = next(self.model.parameters()).device
        self.optimizer = make_optimizer(self.model, config, sharded=distributed.sharded)
        self.average = MovingAverage(model_weights(self.model), decay=config.ema) if config.ema else None
        self.counters = Counters()

    def begin(self) -> None:
        """Sets what a run that begins depends on."""
        if self.device.type == "cuda":  # where our kernels cannot run, dropout draws from the device's own generator
            torch.cuda.manual_seed(self.config.seed)

    def after_step(self) -> None:
        if self.average is not None:
            self.average.update(model_weights(self.model), step=self.counters.step)

    def weights(self) -> dict[str, Tensor]:
        """Those to translate with: the moving average where there is one. Every process must ask."""
        own = model_weights(self.model) if self.average is None else self.average.average
        return self._whole(own)

    def checkpoint(self) -> Checkpoint:
        """Everything. Every process must ask."""
        training = {
            f"optimizer/{name}/{key}": value
            for name, parameter in self.model.named_parameters()
            for key, value in self.optimizer.state.get(parameter, {}).items()
        }
        if self.average is not None:
            training |= {f"trained/{name}": weight for name, weight in model_weights(self.model).items()}
        if self.device.type == "cuda":
            training["generator/cuda"] = torch.cuda.get_rng_state(self.device)
        return Checkpoint(self.weights(), self._whole(training), vars(self.counters).copy())

    def restore(self, checkpoint: Checkpoint, *, origin: str) -> None:
        """Goes back to where the checkpoint was made."""
        try:
            self.counters = msgspec.convert(vars(Counters(**checkpoint.counters)), Counters)
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
        states = _optimizer_states(self.model, training, origin=origin)
        for name, parameter in self.model.named_parameters():
            if states[name]:
                self.optimizer.state[parameter] = {
                    key: self.distributed.placed(value, like=parameter) for key, value in states[name].items()
                }
        if "generator/cuda" in training and self.device.type == "cuda":
            torch.cuda.set_rng_state(training["generator/cuda"], self.device)

    def load(self, weights: Mapping[str, Tensor], *, origin: str) -> None:
        """Copies weights into the model."""
        own = model_weights(self.model)
        placed = {
            name: self.distributed.placed(weight, like=own[name]) if name in own else weight
            for name, weight in weights.items()
        }
        load_weights(self.model, placed, origin=origin)

    def _whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: self.distributed.whole(tensor) for name, tensor in tensors.items()}


def _optimizer_states(model: nn.Module, training: Mapping[str, Tensor], *, origin: str) -> dict[str, dict[str, Tensor]]:
    """What the optimizer remembers of each parameter; refused where a part is missing or of another shape."""
    states: dict[str, dict[str, Tensor]] = {}
    for name, parameter in model.named_parameters():
        prefix = f"optimizer/{name}/"
        states[name] = {key.removeprefix(prefix): one for key, one in training.items() if key.startswith(prefix)}
        if any(one.shape not in (torch.Size(), parameter.shape) for one in states[name].values()):
            raise CheckpointError(f"{origin} does not fit this optimizer: the state of {name!r} has another shape")
    kept = {frozenset(state) for state in states.values() if state}
    for name, state in states.items():
        if state and any(frozenset(state) < complete for complete in kept):
            raise CheckpointError(f"{origin} does not fit this optimizer: a part of the state of {name!r} is missing")
    return states

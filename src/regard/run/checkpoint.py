"""A checkpoint: weights, the state of training, and counters, in a folder that appears when it is complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import CheckpointError, Diverged
from regard.run.tensor_file import WeightKind
from regard.run.torch_tensors import dequantize, quantize, read_tensors, write_tensors
from regard.run.weights import COUNTERS, TRAINING, WEIGHTS, Shapes, check_weights, refuse_other_shapes
from regard.storage.folder import Folder
from regard.storage.manifest import staged


@dataclass
class Checkpoint:
    """Everything that is needed to resume a run."""

    weights: dict[str, Tensor]  # for inference: the moving average if the recipe has one
    training: dict[str, Tensor] = field(default_factory=dict)  # state of the optimizer and of averages
    counters: dict[str, Any] = field(default_factory=dict)


def write_checkpoint(parent: Folder, name: str, checkpoint: Checkpoint, *, kind: WeightKind = "float32") -> None:
    """Write the folder in one step, with weights stored as `kind`. Raise Diverged if a weight is not finite."""
    if bad := first_not_finite(checkpoint.weights):
        raise Diverged(
            f"{parent.path / name} was not written: {bad} contains values that are not finite, so training has diverged; "
            "start a new run (--out) with a lower train.lr, or with train.clip_norm=1"
        )
    with staged(parent, name) as folder:
        write_tensors(folder, WEIGHTS, quantize(checkpoint.weights, kind))
        if checkpoint.training:
            write_tensors(folder, TRAINING, checkpoint.training)
        folder.save_json(COUNTERS, checkpoint.counters)


def first_not_finite(weights: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor with an infinite value or a NaN, or None."""
    floats = (name for name, weight in weights.items() if weight.is_floating_point())
    return next((name for name in floats if not bool(weights[name].isfinite().all())), None)


def copy_of(checkpoint: Checkpoint, *, into: Checkpoint | None = None) -> Checkpoint:
    """Return a copy on the CPU that shares no memory with the model.

    Tensors of the earlier copy `into` are reused if they fit, because allocating memory takes longer than filling it.
    """
    old = Checkpoint({}) if into is None else into
    weights = _copies(checkpoint.weights, old.weights)
    training = _copies(checkpoint.training, old.training)
    if any(one.is_cuda for one in checkpoint.weights.values()):
        torch.cuda.synchronize()
    return Checkpoint(weights, training, dict(checkpoint.counters))


def _copies(tensors: Mapping[str, Tensor], old: Mapping[str, Tensor]) -> dict[str, Tensor]:
    copies = {}
    for name, tensor in tensors.items():
        buffer = old.get(name)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        copies[name] = buffer.copy_(tensor.detach(), non_blocking=True)
    return copies


def read_checkpoint(folder: Folder, *, training: bool = False, expected: Shapes | None = None) -> Checkpoint:
    """Return the checkpoint after verifying its manifest; the state of training only if `training` is set.

    Raise CheckpointError, before the weights are read, if their shapes are not as expected or they exceed the free memory.
    """
    counters = check_weights(folder, expected)
    checkpoint = Checkpoint(dequantize(read_tensors(folder, WEIGHTS)), {}, counters)
    if bad := first_not_finite(checkpoint.weights):
        raise CheckpointError(
            f"{folder} cannot be used: {bad} contains values that are not finite; restore it from a copy of the run"
        )
    if training and folder.has_file(TRAINING):
        checkpoint.training = read_tensors(folder, TRAINING)
    return checkpoint


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters of the model by name. Tied parameters appear once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def weight_shapes(model: nn.Module) -> dict[str, torch.Size]:
    """Return the shape of each parameter by name, tied ones once."""
    return {name: parameter.shape for name, parameter in model.named_parameters()}


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], *, origin: str) -> None:
    """Copies weights into the model; refuses any that are missing, left over or of another shape."""
    own, shapes = model_weights(model), weight_shapes(model)
    given = {name: weight.shape for name, weight in weights.items()}
    refuse_other_shapes(shapes, given, origin=origin)
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])

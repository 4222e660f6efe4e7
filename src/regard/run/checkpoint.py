"""A checkpoint: weights, what training needs to resume, and counters, in a folder that appears when it is complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import torch
from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.run.machine import memory_left
from regard.run.quantize import WeightKind, compact, expand, expanded_shapes
from regard.run.tensors import MAX_HEADER, read_header, read_tensors, write_tensors
from regard.storage.folder import Folder
from regard.storage.manifest import check_folder, staged

WEIGHTS, TRAINING, COUNTERS = "weights.safetensors", "training.safetensors", "counters.json"
MOST_TRAINING = 16  # times the bytes of the weights: optimizer and averages take less

Shapes = Mapping[str, torch.Size]


@dataclass
class Checkpoint:
    """Everything that a run resumes from."""

    weights: dict[str, Tensor]  # what translates: the moving average where there is one
    training: dict[str, Tensor] = field(default_factory=dict)  # optimizer and the like
    counters: dict[str, Any] = field(default_factory=dict)


class _Counters(msgspec.Struct):
    """What readers use of counters.json."""

    step: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    seconds: float = 0.0


def write_checkpoint(parent: Folder, name: str, checkpoint: Checkpoint, *, kind: WeightKind = "float32") -> None:
    """Writes the folder in one step; `kind` is how the weights are stored. Weights that are not finite are refused."""
    if bad := first_not_finite(checkpoint.weights):
        raise CheckpointError(
            f"{parent.path / name} is not written: {bad} holds numbers that are not finite, so training has diverged; "
            "begin a new run (--out) with a lower train.lr, or with train.clip_norm=1"
        )
    with staged(parent, name) as folder:
        write_tensors(folder, WEIGHTS, compact(checkpoint.weights, kind))
        if checkpoint.training:
            write_tensors(folder, TRAINING, checkpoint.training)
        folder.save_json(COUNTERS, checkpoint.counters)


def first_not_finite(weights: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor that holds an infinite number, or one that is not a number; None if there is none."""
    floats = (name for name, weight in weights.items() if weight.is_floating_point())
    return next((name for name in floats if not bool(weights[name].isfinite().all())), None)


def copy_of(checkpoint: Checkpoint, *, into: Checkpoint | None = None) -> Checkpoint:
    """The checkpoint on the CPU, sharing nothing with what training goes on changing.

    The memory of an earlier copy is used again where it fits: new memory takes longer to get than to fill.
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
        room = old.get(name)
        if room is None or room.shape != tensor.shape or room.dtype != tensor.dtype:
            room = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        copies[name] = room.copy_(tensor.detach(), non_blocking=True)
    return copies


def read_checkpoint(folder: Folder, *, training: bool = False, expected: Shapes | None = None) -> Checkpoint:
    """The checkpoint, verified against its manifest; with what training needs only where asked.

    Weights of other shapes than expected, or larger than the memory, are refused before they are read.
    """
    if expected is not None:
        _refuse_too_large(folder, expected)
    check_folder(folder)
    shapes = _stored_shapes(folder)
    if expected is not None:
        refuse_other_shapes(expected, shapes, origin=str(folder))
    needed = _num_bytes(shapes) / 2**30
    if needed > memory_left() / 2**30:
        raise CheckpointError(f"{folder} needs {needed:.1f} GiB of memory for its weights, more than is free here")
    counters = folder.load_json(COUNTERS)
    try:
        msgspec.convert(counters, _Counters)
    except msgspec.ValidationError as error:
        raise CheckpointError(f"{folder.path / COUNTERS} is damaged: {error}") from error
    checkpoint = Checkpoint(expand(read_tensors(folder, WEIGHTS)), {}, counters)
    if bad := first_not_finite(checkpoint.weights):
        raise CheckpointError(
            f"{folder} cannot be used: {bad} holds numbers that are not finite; get another copy of it"
        )
    if training and folder.has_file(TRAINING):
        checkpoint.training = read_tensors(folder, TRAINING)
    return checkpoint


def _refuse_too_large(folder: Folder, expected: Shapes) -> None:
    """Refuse files that are far larger than a model of these shapes, before they are read to be hashed."""
    most = MOST_TRAINING * _num_bytes(expected) + MAX_HEADER
    for name in (WEIGHTS, TRAINING):
        if folder.has_file(name) and folder.file_size(name) > most:
            raise CheckpointError(f"{folder.path / name} does not fit this model: it is larger than {most:,} bytes")


def _stored_shapes(folder: Folder) -> dict[str, torch.Size]:
    stored = read_header(folder, WEIGHTS)
    return expanded_shapes({name: (entry.dtype, entry.shape) for name, entry in stored.items()})


def _num_bytes(shapes: Shapes) -> int:
    return 4 * sum(shape.numel() for shape in shapes.values())


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters by name, tied ones once."""
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


def refuse_other_shapes(expected: Shapes, given: Shapes, *, origin: str) -> None:
    """Raise CheckpointError, naming the first tensor that is missing, left over or of another shape."""
    wrong = sorted(expected.keys() ^ given.keys()) or [name for name in expected if expected[name] != given[name]]
    if wrong:
        raise CheckpointError(f"{origin} does not fit this model: {wrong[0]!r} is missing, extra or of another shape")

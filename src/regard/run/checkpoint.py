"""A checkpoint: weights, what training needs to go on, and counters, in a folder that is whole or not there."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.run.compact import WeightKind, compact, expand
from regard.run.files import check_folder, make_folder, read_json, seal_folder, write_json
from regard.run.tensors import read_tensors, write_tensors


@dataclass
class Checkpoint:
    """Everything that a run goes on from."""

    weights: dict[str, Tensor]  # what translates: the moving average where there is one
    training: dict[str, Tensor] = field(default_factory=dict)  # optimizer and the like
    counters: dict[str, Any] = field(default_factory=dict)


def write_checkpoint(folder: Path, checkpoint: Checkpoint, *, kind: WeightKind = "float32") -> None:
    """Writes the folder in one step; `kind` is how the weights are stored."""
    temporary = folder.with_name(f".{folder.name}.tmp")
    if temporary.exists():
        shutil.rmtree(temporary)
    make_folder(folder.parent)
    temporary.mkdir()
    try:
        write_tensors(temporary / "weights.safetensors", compact(checkpoint.weights, kind))
        if checkpoint.training:
            write_tensors(temporary / "training.safetensors", checkpoint.training)
        write_json(temporary / "counters.json", checkpoint.counters)
        seal_folder(temporary, folder)
    except OSError:  # half a checkpoint must not keep a full disk full
        shutil.rmtree(temporary, ignore_errors=True)
        raise


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


def read_checkpoint(folder: Path, *, training: bool = False) -> Checkpoint:
    """The checkpoint, verified against its manifest; with what training needs only where asked."""
    check_folder(folder)
    checkpoint = Checkpoint(
        expand(read_tensors(folder / "weights.safetensors")), {}, read_json(folder / "counters.json")
    )
    if training and (folder / "training.safetensors").exists():
        checkpoint.training = read_tensors(folder / "training.safetensors")
    return checkpoint


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters by name, tied ones once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], *, origin: str) -> None:
    """Copies weights into the model; refuses any that are missing, left over or of another shape."""
    own = model_weights(model)
    wrong = sorted(own.keys() ^ weights.keys()) or [name for name in own if own[name].shape != weights[name].shape]
    if wrong:
        raise CheckpointError(f"{origin} does not fit this model: {wrong[0]!r} is missing, extra or of another shape")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])

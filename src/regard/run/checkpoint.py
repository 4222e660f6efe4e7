"""A checkpoint: weights, what training needs to go on, and counters, in a folder that is whole or not there."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.run.compact import WeightKind, compact, expand
from regard.run.files import check_folder, read_json, seal_folder, write_json


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
    temporary.mkdir(parents=True)
    try:
        _save(compact(checkpoint.weights, kind), temporary / "weights.safetensors")
        if checkpoint.training:
            _save(checkpoint.training, temporary / "training.safetensors")
        write_json(temporary / "counters.json", checkpoint.counters)
        seal_folder(temporary, folder)
    except OSError:  # half a checkpoint must not keep a full disk full
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def copy_of(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint on the CPU, sharing nothing with what training goes on changing."""
    weights, training = (
        {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        for tensors in (checkpoint.weights, checkpoint.training)
    )
    return Checkpoint(weights, training, dict(checkpoint.counters))


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    try:
        save_file(_plain(tensors), path)
    except SafetensorError as error:  # its words for what the system said, a full disk for one
        full = "No space left" in str(error) or "os error 28" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error), str(path)) from error


def read_checkpoint(folder: Path, *, training: bool = False) -> Checkpoint:
    """The checkpoint, verified against its manifest; with what training needs only where asked."""
    check_folder(folder)
    checkpoint = Checkpoint(
        expand(read_tensors(folder / "weights.safetensors")), {}, read_json(folder / "counters.json")
    )
    if training and (folder / "training.safetensors").exists():
        checkpoint.training = read_tensors(folder / "training.safetensors")
    return checkpoint


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name."""
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    return tensors


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


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}

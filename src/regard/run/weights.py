"""The weights of a checkpoint as they are stored, checked before they are read; without torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
import numpy as np

from regard.errors import CheckpointError
from regard.run.tensor_file import MAX_HEADER, Shape, StoredWeight, dequantized_shapes, read_header, read_stored
from regard.storage.folder import Folder
from regard.storage.manifest import check_folder
from regard.storage.memory import memory_left

WEIGHTS, TRAINING, COUNTERS = "weights.safetensors", "training.safetensors", "counters.json"
MAX_TRAINING_RATIO = 16  # bytes of training state per byte of weights; optimizers and averages need less

Shapes = Mapping[str, Shape]


class _Counters(msgspec.Struct):
    """The fields of counters.json that readers use."""

    step: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    seconds: float = 0.0


class StoredWeights:
    """The weights of a checkpoint, which can be read one at a time, and its counters."""

    def __init__(self, folder: Folder, expected: Shapes | None = None) -> None:
        """Raise CheckpointError if the weights are damaged, are not as expected, or exceed the free memory."""
        self.folder, self.counters = folder, check_weights(folder, expected)

    def tensors(self) -> Iterator[tuple[str, StoredWeight]]:
        """Yield the weights by name. Raise CheckpointError if one is not finite."""
        for name, tensor in read_stored(self.folder, WEIGHTS):
            floats = tensor.data if tensor.scales is None else tensor.scales
            if not np.isfinite(floats).all():
                raise CheckpointError(
                    f"{self.folder} cannot be used: {name} contains values that are not finite; "
                    "restore it from a copy of the run"
                )
            yield name, tensor


def check_weights(folder: Folder, expected: Shapes | None = None) -> dict[str, Any]:
    """Return the counters of a checkpoint after verifying its manifest.

    Raise CheckpointError if the weights do not have the expected shapes, or exceed the free memory.
    """
    if expected is not None:
        _refuse_too_large(folder, expected)
    check_folder(folder)
    shapes = dequantized_shapes(read_header(folder, WEIGHTS))
    if expected is not None:
        refuse_other_shapes(expected, shapes, origin=str(folder))
    needed = _num_bytes(shapes) / 2**30
    if needed > memory_left() / 2**30:
        raise CheckpointError(f"{folder} needs {needed:.1f} GiB of memory for its weights, which is more than is free")
    counters: dict[str, Any] = folder.load_json(COUNTERS)
    try:
        msgspec.convert(counters, _Counters)
    except msgspec.ValidationError as error:
        raise CheckpointError(f"{folder.path / COUNTERS} is damaged: {error}") from error
    return counters


def _refuse_too_large(folder: Folder, expected: Shapes) -> None:
    """Raise CheckpointError for files much larger than a model of these shapes, before they are hashed."""
    most = MAX_TRAINING_RATIO * _num_bytes(expected) + MAX_HEADER
    for name in (WEIGHTS, TRAINING):
        if folder.has_file(name) and folder.file_size(name) > most:
            raise CheckpointError(f"{folder.path / name} does not fit this model: it is larger than {most:,} bytes")


def _num_bytes(shapes: Shapes) -> int:
    return 4 * sum(math.prod(shape) for shape in shapes.values())


def refuse_other_shapes(expected: Shapes, given: Shapes, *, origin: str) -> None:
    """Raise CheckpointError with the name of the first tensor that is missing, extra or of another shape."""
    wrong = sorted(expected.keys() ^ given.keys()) or [name for name in expected if expected[name] != given[name]]
    if wrong:
        raise CheckpointError(f"{origin} does not fit this model: {wrong[0]!r} is missing, extra or of another shape")

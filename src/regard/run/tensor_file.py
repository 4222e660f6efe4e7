"""Reading of safetensors files, and weights stored in fewer bytes; without torch.

The format: 8 bytes with the length of the header, the header (JSON with the type, shape and position of each tensor), then
the bytes of all tensors. `read_header` reads shapes without allocating the tensors, so that callers can check them first.
The safetensors library opens files by path, but files of a run are untrusted and opened by `regard.storage` only.

Weights are stored as float32, float16, or int8 with one scale per row: an int8 matrix NAME has a vector NAME.scale, and row
r is integers[r] * scale[r]. Vectors are then stored as float16. `run.torch_tensors` makes tensors of these, and writes them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from io import BufferedReader
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import CheckpointError
from regard.messages import counted
from regard.storage.folder import MIB, Folder, parse_json

# Bytes of an entry of each type.
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
# Those of weights that numpy has.
_NUMPY: dict[str, type[np.generic]] = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I8": np.int8}
MAX_HEADER = 64 * MIB
MAX_DIMENSIONS = 8
WeightKind = Literal["float32", "float16", "int8"]
SCALE = ".scale"

Shape = tuple[int, ...]


class TensorInfo(NamedTuple):
    """The entry of one tensor in a header."""

    dtype: str
    shape: Shape
    begin: int  # byte offsets after the header
    end: int


class StoredWeight(NamedTuple):
    """A weight as it is stored: float32, float16, or int8 with one scale per row."""

    data: NDArray[Any]
    scales: NDArray[np.float32] | None = None


def read_header(folder: Folder, name: str) -> dict[str, TensorInfo]:
    """Return the entries of a file by name. Raise CheckpointError unless every byte belongs to exactly one tensor."""
    with folder.open_file(name) as file:
        return _header(file, origin=folder.path / name)[0]


def tensor_bytes(folder: Folder, name: str) -> Iterator[tuple[str, TensorInfo, NDArray[np.uint8]]]:
    """Yield the name, the entry and the bytes of each tensor of a file."""
    with folder.open_file(name) as file:
        origin = folder.path / name
        entries, start = _header(file, origin=origin)
        for key, entry in entries.items():
            yield key, entry, _read(file, start, entry, origin)


def read_stored(folder: Folder, name: str) -> Iterator[tuple[str, StoredWeight]]:
    """Yield the weights of a file by name, one at a time."""
    with folder.open_file(name) as file:
        origin = folder.path / name
        entries, start = _header(file, origin=origin)
        for key, entry in entries.items():
            if _is_scale(key, entries):
                continue
            if entry.dtype not in _NUMPY:
                raise CheckpointError(f"{origin} cannot be used: {key[:80]!r} is stored as {entry.dtype}")
            scales = None
            if entry.dtype == "I8":
                scales = _read(file, start, entries[key + SCALE], origin).view(np.float32)
            data = _read(file, start, entry, origin).view(_NUMPY[entry.dtype]).reshape(entry.shape)
            yield key, StoredWeight(data, scales)


def _read(file: BufferedReader, start: int, entry: TensorInfo, origin: object) -> NDArray[np.uint8]:
    raw = np.empty(entry.end - entry.begin, dtype=np.uint8)
    file.seek(start + entry.begin)
    if raw.size and file.readinto(raw.data) != raw.size:
        raise CheckpointError(f"{origin} became shorter while it was read")
    return raw


def _header(file: BufferedReader, *, origin: object) -> tuple[dict[str, TensorInfo], int]:
    """Return the entries, and the position of the first byte after the header."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if not 0 < length <= min(MAX_HEADER, size - 8):
        raise CheckpointError(f"{origin} cannot be read: it is not a safetensors file")
    header = parse_json(file.read(length), origin=origin)
    if not isinstance(header, dict):
        raise CheckpointError(f"{origin} cannot be read: its header is not an object")
    header.pop("__metadata__", None)
    entries = {name: _entry(value, f"{origin}: {name[:80]!r}") for name, value in header.items()}
    end = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != end:
            raise CheckpointError(f"{origin} cannot be read: its tensors overlap or leave gaps")
        end = entry.end
    if 8 + length + end != size:
        raise CheckpointError(
            f"{origin} cannot be read: it has {counted(size, 'byte')}, but its header needs {8 + length + end:,}"
        )
    return entries, 8 + length


def _entry(value: Any, origin: str) -> TensorInfo:
    match value:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]} if dtype in SIZES:
            valid = all(type(size) is int and 0 <= size < 2**48 for size in shape) and len(shape) <= MAX_DIMENSIONS
            if valid and end - begin == math.prod(shape) * SIZES[dtype] and 0 <= begin <= end:
                return TensorInfo(dtype, tuple(shape), begin, end)
    raise CheckpointError(f"{origin} does not describe a tensor")


def dequantized_shapes(stored: Mapping[str, TensorInfo]) -> dict[str, Shape]:
    """Return the shapes of the weights that are stored in a file with these entries.

    Raise CheckpointError if a scale is missing.
    """
    for name, info in stored.items():
        scale = stored.get(name + SCALE)
        if info.dtype == "I8" and (scale is None or (scale.dtype, scale.shape) != ("F32", info.shape[:1])):
            raise CheckpointError(f"{name[:80]!r} is stored as int8 without one scale per row")
    return {name: info.shape for name, info in stored.items() if not _is_scale(name, stored)}


def _is_scale(name: str, stored: Mapping[str, TensorInfo]) -> bool:
    """Return whether an entry is the scales of an int8 matrix."""
    matrix = stored.get(name.removesuffix(SCALE))
    return name.endswith(SCALE) and matrix is not None and matrix.dtype == "I8"

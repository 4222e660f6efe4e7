"""Reading and writing of safetensors files, and weights stored in fewer bytes.

The format: 8 bytes with the length of the header, the header (JSON with the type, shape and position of each tensor), then
the bytes of all tensors. `read_header` reads shapes without allocating the tensors, so that callers can check them first.
The safetensors library opens files by path, but files of a run are untrusted and opened by `regard.storage` only.

Weights are stored as float32, float16, or int8 with one scale per row: an int8 matrix NAME has a vector NAME.scale, and row
r is integers[r] * scale[r]. Vectors are then stored as float16.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from io import BufferedReader
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from regard.errors import CheckpointError, ConfigError
from regard.messages import counted
from regard.storage.folder import MIB, Folder, parse_json

TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_DTYPES = {name: dtype for dtype, name in TYPES.items()}
MAX_HEADER = 64 * MIB
MAX_DIMENSIONS = 8
WeightKind = Literal["float32", "float16", "int8"]
SCALE = ".scale"


class TensorInfo(NamedTuple):
    """The entry of one tensor in a header."""

    dtype: torch.dtype
    shape: torch.Size
    begin: int  # byte offsets after the header
    end: int


def write_tensors(folder: Folder, name: str, tensors: Mapping[str, Tensor]) -> None:
    """Write the tensors, wide types first so that all are aligned. Writing does not hold the interpreter lock."""
    plain = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    keys = sorted(plain, key=lambda key: (-plain[key].element_size(), key))
    header, end = {}, 0
    for key in keys:
        begin, end = end, end + plain[key].nbytes
        header[key] = {
            "dtype": TYPES[plain[key].dtype],
            "shape": list(plain[key].shape),
            "data_offsets": [begin, end],
        }
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    with folder.create_file(name) as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for key in keys:
            file.write(plain[key].flatten().view(torch.uint8).numpy().data)


def read_header(folder: Folder, name: str) -> dict[str, TensorInfo]:
    """Return the entries of a file by name. Raise CheckpointError unless every byte belongs to exactly one tensor."""
    with folder.open_file(name) as file:
        return _header(file, origin=folder.path / name)[0]


def read_tensors(folder: Folder, name: str) -> dict[str, Tensor]:
    """Return the tensors of a file by name."""
    with folder.open_file(name) as file:
        origin = folder.path / name
        entries, start = _header(file, origin=origin)
        return {key: _read(file, start, entry, origin) for key, entry in entries.items()}


def _read(file: BufferedReader, start: int, entry: TensorInfo, origin: object) -> Tensor:
    raw = torch.empty(entry.end - entry.begin, dtype=torch.uint8)
    file.seek(start + entry.begin)
    if raw.numel() and file.readinto(raw.numpy().data) != raw.numel():
        raise CheckpointError(f"{origin} became shorter while it was read")
    if entry.dtype is torch.bool:
        # Bytes other than 0 and 1 would be invalid booleans.
        return raw.ne(0).view(entry.shape)
    return raw.view(entry.dtype).view(entry.shape)


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
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]} if dtype in _DTYPES:
            valid = all(type(size) is int and 0 <= size < 2**48 for size in shape) and len(shape) <= MAX_DIMENSIONS
            if valid and end - begin == math.prod(shape) * _DTYPES[dtype].itemsize and 0 <= begin <= end:
                return TensorInfo(_DTYPES[dtype], torch.Size(shape), begin, end)
    raise CheckpointError(f"{origin} does not describe a tensor")


def quantize(weights: Mapping[str, Tensor], kind: WeightKind) -> dict[str, Tensor]:
    """Return the tensors to store."""
    if kind == "float32":
        return dict(weights)
    stored = {}
    for name, weight in weights.items():
        if kind == "float16" or weight.dim() < 2:
            stored[name] = weight.to(torch.float16)
            if not stored[name].isfinite().all():
                raise ConfigError(f"{name} has values too large for float16; store float32")
            continue
        scale = weight.float().abs().amax(dim=1).clamp(min=1e-12) / 127
        stored[name] = (weight.float() / scale[:, None]).round().to(torch.int8)
        stored[name + SCALE] = scale
    return stored


def dequantized_shapes(stored: Mapping[str, tuple[torch.dtype, torch.Size]]) -> dict[str, torch.Size]:
    """Return the shapes that `dequantize` would return for these types and shapes.

    Raise CheckpointError if a scale is missing.
    """
    shapes = {}
    for name, (dtype, shape) in stored.items():
        if dtype is torch.int8 and stored.get(name + SCALE) != (torch.float32, shape[:1]):
            raise CheckpointError(f"{name[:80]!r} is stored as int8 without one scale per row")
        if not (name.endswith(SCALE) and stored.get(name.removesuffix(SCALE), (None,))[0] is torch.int8):
            shapes[name] = shape
    return shapes


def dequantize(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights for computation: float16 and int8 tensors are converted to float32."""
    weights = {}
    for name, tensor in stored.items():
        if name.endswith(SCALE) and _is_int8(stored.get(name.removesuffix(SCALE))):
            continue
        if _is_int8(tensor):
            tensor = tensor.float() * stored[name + SCALE][:, None]
        weights[name] = tensor.float() if tensor.dtype == torch.float16 else tensor
    return weights


def _is_int8(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.dtype == torch.int8

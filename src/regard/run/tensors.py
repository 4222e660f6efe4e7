"""Tensors in a safetensors file, written and read by ourselves.

The format: the length of a header in 8 bytes, the header (JSON: each tensor's type, shape and place), then all bytes. The
header alone says how much memory the tensors take, so `read_header` is asked first whether they are the ones expected.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from io import BufferedReader
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import CheckpointError
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


class Entry(NamedTuple):
    """What a header says of one tensor."""

    dtype: torch.dtype
    shape: torch.Size
    begin: int  # bytes behind the header
    end: int


def write_tensors(folder: Folder, name: str, tensors: Mapping[str, Tensor]) -> None:
    """Writes the tensors, those of wide types first, so that all lie aligned; without holding up other threads."""
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
    words = json.dumps(header, separators=(",", ":")).encode()
    words += b" " * (-len(words) % 8)
    with folder.create_file(name) as file:
        file.write(len(words).to_bytes(8, "little") + words)
        for key in keys:
            file.write(plain[key].flatten().view(torch.uint8).numpy().data)


def read_header(folder: Folder, name: str) -> dict[str, Entry]:
    """What the file holds, by name; every byte of it is part of one tensor, or CheckpointError."""
    with folder.open_file(name) as file:
        return _header(file, origin=folder.path / name)[0]


def read_tensors(folder: Folder, name: str) -> dict[str, Tensor]:
    """The tensors of a file, by name."""
    with folder.open_file(name) as file:
        origin = folder.path / name
        entries, start = _header(file, origin=origin)
        return {key: _read(file, start, entry, origin) for key, entry in entries.items()}


def _read(file: BufferedReader, start: int, entry: Entry, origin: object) -> Tensor:
    raw = torch.empty(entry.end - entry.begin, dtype=torch.uint8)
    file.seek(start + entry.begin)
    if raw.numel() and file.readinto(raw.numpy().data) != raw.numel():
        raise CheckpointError(f"{origin} was cut off while it was read")
    if entry.dtype is torch.bool:  # any other byte than 0 and 1 would be neither
        return raw.ne(0).view(entry.shape)
    return raw.view(entry.dtype).view(entry.shape)


def _header(file: BufferedReader, *, origin: object) -> tuple[dict[str, Entry], int]:
    """The entries, and where their bytes begin."""
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
            raise CheckpointError(f"{origin} cannot be read: its tensors overlap, or leave gaps")
        end = entry.end
    if 8 + length + end != size:
        raise CheckpointError(
            f"{origin} cannot be read: it has {size:,} bytes, not the {8 + length + end:,} of its header"
        )
    return entries, 8 + length


def _entry(value: Any, origin: str) -> Entry:
    match value:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]} if dtype in _DTYPES:
            whole = all(type(size) is int and 0 <= size < 2**48 for size in shape) and len(shape) <= MAX_DIMENSIONS
            if whole and end - begin == math.prod(shape) * _DTYPES[dtype].itemsize and 0 <= begin <= end:
                return Entry(_DTYPES[dtype], torch.Size(shape), begin, end)
    raise CheckpointError(f"{origin} is not described as a tensor")

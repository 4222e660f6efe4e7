"""Tensors in a safetensors file. Written by ourselves: straight from memory, without holding up other threads.

The format: the length of a header in 8 bytes, the header (JSON: each tensor's type, shape and place), then all bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regard.errors import CheckpointError

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


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes the tensors, those of wide types first, so that all lie aligned."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    names = sorted(plain, key=lambda name: (-plain[name].element_size(), name))
    header, end = {}, 0
    for name in names:
        begin, end = end, end + plain[name].nbytes
        header[name] = {
            "dtype": TYPES[plain[name].dtype],
            "shape": list(plain[name].shape),
            "data_offsets": [begin, end],
        }
    words = json.dumps(header, separators=(",", ":")).encode()
    words += b" " * (-len(words) % 8)
    with path.open("wb") as file:
        file.write(len(words).to_bytes(8, "little") + words)
        for name in names:
            file.write(plain[name].flatten().view(torch.uint8).numpy().data)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name."""
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    return tensors

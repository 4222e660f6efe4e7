"""CTranslate2's model.bin: named tensors, and settings, which are tensors of no dimension."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from io import BufferedReader
from typing import Any

import torch
from torch import Tensor

from regard.errors import ConfigError
from regard.storage.folder import Folder

VERSION = 6  # of the binary format
SPEC = "TransformerSpec"
MAX_VARIABLES, MAX_DIMENSIONS = 100_000, 8
TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)


def read_model_file(folder: Folder, name: str) -> tuple[dict[str, Tensor], dict[str, int | float]]:
    """Return the tensors of a file in float32, and its settings."""
    origin = str(folder.path / name)
    with folder.open_file(name) as file:
        return _dequantized(_Reader(file, origin).variables(), origin)


class _Reader:
    """Reads variables, checking every number against what is left of the file."""

    def __init__(self, file: BufferedReader, origin: str) -> None:
        self.file, self.origin = file, origin
        self.left = os.fstat(file.fileno()).st_size

    def variables(self) -> dict[str, Tensor]:
        version = self._number("<I")
        if version != VERSION:
            raise ConfigError(f"{self.origin} is of version {version}; only {VERSION} is read: convert the model again")
        if (spec := self._text()) != SPEC:
            raise ConfigError(f"{self.origin} is a {spec[:80]!r}; only {SPEC!r}, a translation model, is imported")
        self._number("<I")  # the revision of the specification
        found: dict[str, Tensor] = {}
        for _ in range(self._count()):
            name = self._text()
            found[name] = self._tensor()
        for _ in range(self._count()):
            alias, name = self._text(), self._text()
            if name not in found:
                raise ConfigError(f"{self.origin} is damaged: {alias[:80]!r} is another name of something missing")
            found[alias] = found[name]
        return found

    def _tensor(self) -> Tensor:
        rank = self._number("<B")
        shape = [self._number("<I") for _ in range(min(rank, MAX_DIMENSIONS))]
        type_id, size = self._number("<B"), self._number("<I")
        if rank > MAX_DIMENSIONS or type_id >= len(TYPES) or math.prod(shape) * TYPES[type_id].itemsize != size:
            raise ConfigError(f"{self.origin} is damaged: it describes a tensor that cannot be")
        if not size:
            return torch.empty(shape, dtype=TYPES[type_id])
        raw = torch.frombuffer(bytearray(self._bytes(size)), dtype=torch.uint8)
        return raw.view(TYPES[type_id]).view(shape)

    def _count(self) -> int:
        count: int = self._number("<I")
        if count > MAX_VARIABLES:
            raise ConfigError(f"{self.origin} is damaged: it has {count:,} variables")
        return count

    def _text(self) -> str:
        return self._bytes(self._number("<H")).rstrip(b"\0").decode(errors="replace")

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))[0]

    def _bytes(self, size: int) -> bytes:
        if size > self.left:
            raise ConfigError(f"{self.origin} is damaged: it ends early")
        self.left -= size
        return self.file.read(size)


def _dequantized(variables: Mapping[str, Tensor], origin: str) -> tuple[dict[str, Tensor], dict[str, int | float]]:
    """Return the tensors in float32, and the settings, which are stored as tensors of no dimension.

    Integers are divided by their scales. A tensor with two names stays one tensor.
    """
    tensors: dict[str, Tensor] = {}
    scalars: dict[str, int | float] = {}
    done: dict[int, Tensor] = {}
    for name, value in variables.items():
        if name.endswith("_scale"):
            continue
        if value.dim() == 0:
            scalars[name] = value.item()
            continue
        if id(value) not in done:
            scale = variables.get(f"{name}_scale")
            if not value.is_floating_point() and scale is None:
                raise ConfigError(f"{origin}: {name[:80]!r} has integers without a scale, which is not imported")
            wide = value.to(torch.float32)
            if scale is not None:
                wide /= scale.to(torch.float32).view(-1, *[1] * (wide.dim() - 1)) if scale.dim() else scale
            done[id(value)] = wide
        tensors[name] = done[id(value)]
    return tensors, scalars

"""Reading PyTorch's own files of weights (.bin, .pt), without running what they hold (`exchange.opcodes`).

Since 1.6 such a file is a zip archive: data.pkl describes the values, and data/KEY holds the numbers of each storage.
Before, it was a sequence of descriptions followed by the numbers.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Collection, Mapping
from io import BufferedReader
from typing import Any

import torch
from torch import Tensor

from regard.errors import ConfigError
from regard.exchange.opcodes import Storage, StoredTensor, read_value, storage_of
from regard.storage.folder import Folder
from regard.storage.memory import memory_left

MAX_DESCRIPTION = 256 * 2**20  # bytes
MAX_ENTRIES = 200_000  # of an archive, and values in it
MAX_DEPTH = 20
ZIP = b"PK\x03\x04"
MAGIC = 0x1950A86A20F9469CFC6C  # the first value of a file of the old kind

ReadStorage = Callable[[Storage], Tensor]


def read_torch_file(folder: Folder, name: str, *, only: Collection[str] = ()) -> Any:
    """Return the value in a file, with its tensors. Of a mapping, only the given keys are read, if some are given."""
    origin = folder.path / name
    with folder.open_file(name) as file:
        begin = file.read(len(ZIP))
        file.seek(0)
        value, read = _zip_value(file, origin) if begin == ZIP else _old_value(file, origin)
        if only and isinstance(value, dict):
            value = {key: one for key, one in value.items() if key in only}
        cache: dict[str, Tensor] = {}

        def read_once(storage: Storage) -> Tensor:
            if storage.key not in cache:
                cache[storage.key] = read(storage)
            if cache[storage.key].dtype != storage.dtype or len(cache[storage.key]) < storage.length:
                raise ConfigError(f"{origin} is damaged: a storage is described in two ways")
            return cache[storage.key]

        return _with_tensors(value, read_once, _Budget(origin))


class _Budget:
    """Counts values and bytes, so that a small file cannot fill the memory."""

    def __init__(self, origin: object) -> None:
        self.origin, self.values, self.bytes = origin, 0, 0.0
        self.most = memory_left()

    def spend(self, tensor: StoredTensor | None, depth: int) -> None:
        self.values += 1
        if tensor is not None:
            self.bytes += torch.Size(tensor.shape).numel() * tensor.storage.dtype.itemsize
        if self.values > 50 * MAX_ENTRIES or depth > MAX_DEPTH or self.bytes > self.most:
            raise ConfigError(f"{self.origin} holds more than fits into memory, or is nested too deeply")


def _with_tensors(value: Any, read: ReadStorage, budget: _Budget, depth: int = 0) -> Any:
    """Return the value with its tensors read."""
    if isinstance(value, StoredTensor):
        budget.spend(value, depth)
        numbers = read(value.storage)
        return numbers.as_strided(value.shape, value.stride, value.offset).clone(memory_format=torch.contiguous_format)
    budget.spend(None, depth)
    if isinstance(value, dict):
        return {key: _with_tensors(one, read, budget, depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_tensors(one, read, budget, depth + 1) for one in value]
    return value


def tensors_of(value: Any, *, origin: str) -> dict[str, Tensor]:
    """Return a mapping of names to tensors. Raise ConfigError if the value is something else."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ConfigError(f"{origin} does not hold a mapping of names to tensors, which the weights of a model are")
    other = next((key for key, one in value.items() if not isinstance(one, Tensor)), None)
    if other is not None:
        raise ConfigError(f"{origin} has {other[:80]!r} among its weights, which is not a tensor")
    return dict(value)


def _zip_value(file: BufferedReader, origin: object) -> tuple[Any, ReadStorage]:
    try:
        archive = zipfile.ZipFile(file)
        entries = {entry.filename: entry for entry in archive.infolist()}
        found = [name for name in entries if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(found) != 1 or len(entries) > MAX_ENTRIES:
            raise ConfigError(f"{origin} is a zip archive, but not one that PyTorch wrote")
        root = found[0].removesuffix("data.pkl")
        packed = next((name for name, entry in entries.items() if entry.compress_type != zipfile.ZIP_STORED), None)
        if packed is not None:
            raise ConfigError(f"{origin} has the compressed entry {packed[:80]!r}; PyTorch does not compress")
        if f"{root}byteorder" in entries and archive.read(f"{root}byteorder")[:10] != b"little":
            raise ConfigError(f"{origin} was written on a machine with another order of bytes")
        if entries[found[0]].file_size > MAX_DESCRIPTION:
            raise ConfigError(f"{origin} describes its values in more than {MAX_DESCRIPTION:,} bytes")
        description = archive.read(found[0])
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise ConfigError(f"{origin} is damaged: {error}") from error
    value, _ = read_value(description, 0, persistent=lambda one: storage_of(one, origin=origin), origin=origin)

    def read(storage: Storage) -> Tensor:
        name, size = f"{root}data/{storage.key}", storage.length * storage.dtype.itemsize
        if name not in entries or entries[name].file_size < size:
            raise ConfigError(f"{origin} is damaged: the numbers of storage {storage.key[:80]!r} are missing")
        try:
            return _numbers(archive.read(name)[:size], storage)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
            raise ConfigError(f"{origin} is damaged: {error}") from error

    return value, read


def _old_value(file: BufferedReader, origin: object) -> tuple[Any, ReadStorage]:
    """Return the value of a file of the kind before 1.6: five descriptions, then the numbers of the storages."""
    size = os.fstat(file.fileno()).st_size
    if size > memory_left():
        raise ConfigError(f"{origin} is larger than the free memory")
    content = file.read(size)
    nothing: Callable[[Any], Any] = lambda one: storage_of(one, origin=origin)  # noqa: E731
    magic, at = read_value(content, 0, persistent=nothing, origin=origin)
    if magic != MAGIC:
        raise ConfigError(f"{origin} is not a file that PyTorch wrote")
    _, at = read_value(content, at, persistent=nothing, origin=origin)
    _, at = read_value(content, at, persistent=nothing, origin=origin)
    storages: dict[str, Storage] = {}

    def remember(one: Any) -> Storage:
        found = storage_of(one, origin=origin)
        if list(one)[5:] not in ([], [None]):
            raise ConfigError(f"{origin} has a storage that is a view of another; save it with a newer PyTorch")
        storages[found.key] = found
        return found

    value, at = read_value(content, at, persistent=remember, origin=origin)
    keys, at = read_value(content, at, persistent=nothing, origin=origin)
    if not isinstance(keys, list) or set(map(str, keys)) != set(storages):
        raise ConfigError(f"{origin} is damaged: its storages are not those that it describes")
    tensors: dict[str, Tensor] = {}
    for key in map(str, keys):
        storage = storages[key]
        count, at = int.from_bytes(content[at : at + 8], "little"), at + 8
        end = at + storage.length * storage.dtype.itemsize
        if count != storage.length or end > len(content):
            raise ConfigError(f"{origin} is damaged: the numbers of storage {key[:80]!r} are missing")
        tensors[key], at = _numbers(content[at:end], storage), end
    return value, lambda storage: tensors[storage.key]


def _numbers(content: bytes, storage: Storage) -> Tensor:
    if not content:
        return torch.empty(0, dtype=storage.dtype)
    raw = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    # Bytes other than 0 and 1 would be invalid booleans.
    return raw.ne(0) if storage.dtype is torch.bool else raw.view(storage.dtype)

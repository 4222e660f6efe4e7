"""Reading numpy's archives of arrays (.npz) and the part of YAML that Marian writes, with limits."""

from __future__ import annotations

import json
import re
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import ConfigError
from regard.storage.folder import Folder
from regard.storage.memory import memory_left

MAX_ENTRIES, MAX_HEADER = 100_000, 10_000
MAGIC = b"\x93NUMPY"
# The header is a mapping with three keys, in this order in all files that are written by numpy or by cnpy.
HEADER = re.compile(
    r"\{\s*'descr':\s*'([<|][a-z][0-9]+)',\s*'fortran_order':\s*(True|False),\s*'shape':\s*\(([0-9,\s]*)\),?\s*\}\s*"
)
TYPES = {"<f4", "<f8", "<f2", "<i4", "<i8", "<i2", "|i1", "|u1", "<u4", "<u8", "<u2"}


def read_npz(folder: Folder, name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of an archive by name."""
    origin = folder.path / name
    with folder.open_file(name) as file:
        try:
            archive = zipfile.ZipFile(file)
            entries = archive.infolist()
            total = sum(entry.file_size for entry in entries)
            if len(entries) > MAX_ENTRIES or total > memory_left() / 2:
                raise ConfigError(f"{origin} holds {total / 1e9:.1f} GB of arrays, which is more than fits into memory")
            return {
                entry.filename.removesuffix(".npy"): _array(archive.read(entry), f"{origin}: {entry.filename[:80]}")
                for entry in entries
            }
        except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError, RuntimeError) as error:
            raise ConfigError(f"{origin} is damaged: {error}") from error


def _array(content: bytes, origin: str) -> NDArray[Any]:
    """Return the array in the bytes of an .npy file."""
    major = content[6] if len(content) > 10 and content[:6] == MAGIC else 0
    start, size = {1: (10, 2), 2: (12, 4)}.get(major, (0, 0))
    length = int.from_bytes(content[8 : 8 + size], "little")
    found = HEADER.fullmatch(content[start : start + length].decode("latin-1")) if 0 < length <= MAX_HEADER else None
    if found is None or found[1] not in TYPES:
        raise ConfigError(f"{origin} is not an array of numbers")
    shape = [int(one) for one in found[3].split(",") if one.strip()]
    data, kind = content[start + length :], np.dtype(found[1])
    if np.prod(shape, dtype=object) * kind.itemsize != len(data):
        raise ConfigError(f"{origin} does not have as many numbers as its shape says")
    return np.frombuffer(data, kind).reshape(shape, order="F" if found[2] == "True" else "C")


def parse_yaml(text: str, *, origin: str) -> dict[str, Any]:
    """Return the settings in a file: `key: value`, where a value is a scalar or a list, inside brackets or one per line."""
    found: dict[str, Any] = {}
    key = None
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.rstrip("\r\0")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if item := re.fullmatch(r"\s*- (.*)", line):
            if key is None or not isinstance(found.get(key), list | None):
                raise ConfigError(f"{origin}, line {number}: there is an entry of no list")
            found[key] = [*(found[key] or []), _scalar(item[1])]
        elif (pair := re.fullmatch(r"([A-Za-z][^:\s]*):(?:\s+(.*))?", line)) is not None:
            key = pair[1]
            value = (pair[2] or "").strip()
            if value.startswith("[") and value.endswith("]"):
                found[key] = [_scalar(one.strip()) for one in value[1:-1].split(",") if one.strip()]
            else:
                found[key] = _scalar(value)
        elif not line.startswith(" "):
            raise ConfigError(f"{origin}, line {number}, is not a setting and its value")
    return found


def parse_vocabulary(text: str, *, origin: str) -> list[str]:
    """Return the symbols of a vocabulary: a mapping of symbols to ids in YAML or JSON, or one symbol per line."""
    if text.lstrip().startswith("{"):
        try:
            given = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{origin} is damaged: {error}") from error
        pairs = [(str(symbol), id) for symbol, id in given.items()]
    else:
        pairs = []
        lines = text.removesuffix("\n").split("\n")
        complex_key: str | None = None
        for number, line in enumerate(lines, start=1):
            line = line.rstrip("\r")
            if complex_key is None and line.startswith("? "):
                complex_key = line[2:]
                continue
            symbol, _, id = (complex_key, "", line[1:]) if complex_key is not None else line.rpartition(":")
            complex_key = None
            if not line.strip():
                continue
            if not id.strip().isdigit():
                raise ConfigError(f"{origin}, line {number}, is not a symbol and its id")
            pairs.append((_unquoted(symbol), int(id)))
    if sorted(id for _, id in pairs if isinstance(id, int)) != list(range(len(pairs))):
        raise ConfigError(f"{origin} does not have each id from 0 to {len(pairs) - 1} once")
    return [symbol for symbol, _ in sorted(pairs, key=lambda pair: pair[1])]


def _unquoted(symbol: str) -> str:
    """Return the text of a YAML scalar."""
    if len(symbol) > 1 and symbol[0] == symbol[-1] == "'":
        return symbol[1:-1].replace("''", "'")
    if len(symbol) > 1 and symbol[0] == symbol[-1] == '"':
        return re.sub(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", _unescaped, symbol[1:-1])
    return symbol


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    if len(escape) > 1:
        code = int(escape[1:], 16)
        return chr(code) if code < 0x110000 else "\ufffd"
    return {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}.get(escape, escape)


def _scalar(text: str) -> Any:
    """Return a number, a truth value, None or a text."""
    known = {"true": True, "false": False, "~": None, "null": None, "": None}
    if text in known:
        return known[text]
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if re.fullmatch(r"-?[0-9]*\.?[0-9]+(e-?[0-9]{1,3})?", text):
        return float(text)
    return _unquoted(text)

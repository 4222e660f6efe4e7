"""Computes sizes, hashes and checksums again after an edit, so that it is not refused for a wrong hash."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz.tree_edits import as_json, encoded

LARGEST = 8_000_000  # bytes that are hashed here


@cache
def _hash_of_zeros(size: int) -> str:
    digest, block = hashlib.sha256(), bytes(2**20)
    for _ in range(size // len(block)):
        digest.update(block)
    digest.update(bytes(size % len(block)))
    return digest.hexdigest()


def fingerprint(path: Path) -> dict[str, Any] | None:
    """Return the manifest entry of a file; None if there is no regular file."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return None
        if found.st_size > LARGEST:  # a sparse file
            digest = _hash_of_zeros(found.st_size) if found.st_size < 10**9 else "0" * 64
        else:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None
    return {"size": found.st_size, "sha256": digest}


def _read(path: Path) -> Any:
    """Return the value of a small JSON file that is not a link."""
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
        raise ValueError(path)
    return json.loads(path.read_bytes())


def seal_manifest(folder: Path, edit: Any = None) -> None:
    """Write the manifest of the folder again; `edit` changes its list of files before that is hashed."""
    path = folder / "manifest.json"
    try:
        files = _read(path)["files"]
        names = list(files)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return
    for name in names:
        files[name] = fingerprint(folder / str(name)) or files[name]
    if edit is not None:
        files = edit(files)
    raw = as_json(files, indent=None)
    try:
        text = json.dumps(json.loads(raw), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        content = json.dumps({"files": json.loads(raw), "sha256": digest}, indent=1) + "\n"
    except (ValueError, RecursionError):
        content = f'{{"files": {raw}, "sha256": "{"0" * 64}"}}\n'
    path.write_bytes(encoded(content))


def manifest_digest(folder: Path) -> str | None:
    try:
        return str(_read(folder / "manifest.json")["sha256"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def seal_store(folder: Path) -> None:
    """Write the hashes of store.json again: of the shards, the tokenizer, and the file itself."""
    path = folder / "store.json"
    try:
        info = _read(path)
        for number, shard in enumerate(info["shards"]):
            shard["sha256"] = manifest_digest(folder / f"shard-{number:05d}") or shard["sha256"]
        info["tokenizer_sha256"] = manifest_digest(folder / "tokenizer") or info["tokenizer_sha256"]
        info.pop("sha256", None)
        digest = hashlib.sha256(json.dumps(info, sort_keys=True).encode()).hexdigest()
        path.write_bytes(encoded(json.dumps({**info, "sha256": digest}, ensure_ascii=False, indent=1)))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return


def log_line(body: str, *, right: bool) -> bytes:
    """Return a line of a log with a right or wrong checksum; `body` ends in a brace."""
    content = encoded(body)
    checksum = zlib.crc32(content[:-1] + b"}") if right else 0
    return content[:-1] + f', "crc": "{checksum:08x}"}}\n'.encode()

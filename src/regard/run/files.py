"""Writing so that a crash at any instant leaves the old file or the new one, never half of either."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import CheckpointError

MANIFEST = "manifest.json"


def write_text(path: Path, text: str) -> None:
    """Replaces the file's text in one step."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces the file's content in one step."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replaces the file by this value."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """The value in a JSON file of ours."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing") from error
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error


def make_folder(folder: Path) -> None:
    """Makes the folder and those above it where they are missing, each on the disk before anything is written into it."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


@contextmanager
def held(folder: Path, *, busy: str) -> Iterator[None]:
    """Holds the folder against a second writer, who is told `busy`. The lock goes with the process, however that ends."""
    make_folder(folder)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CheckpointError(busy) from error
        yield


def seal_folder(temporary: Path, final: Path) -> None:
    """Gives a folder its manifest of sizes and hashes, makes sure it is on the disk, and moves it to its final name."""
    files = sorted(path for path in temporary.iterdir() if path.name != MANIFEST)
    write_manifest(temporary, {path.name: path for path in files})
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(temporary)
    old = _set_aside(final) if final.exists() else None
    temporary.replace(final)
    sync_folder(final.parent)
    if old is not None:
        shutil.rmtree(old)


def remove_folder(folder: Path) -> None:
    """Takes the folder away in one step, so that a reader finds it whole or not at all; then deletes it."""
    aside = _set_aside(folder)
    sync_folder(aside.parent)  # else a crash may leave the old name with half of its files
    shutil.rmtree(aside)


def _set_aside(folder: Path) -> Path:
    aside = folder.with_name(f".{folder.name}.gone")
    if aside.exists():
        shutil.rmtree(aside)
    folder.replace(aside)
    return aside


def write_manifest(folder: Path, files: dict[str, Path]) -> None:
    """Writes down sizes and hashes of these files under these names, and a hash of that."""
    write_text(folder / MANIFEST, _manifest_text({name: _fingerprint(path) for name, path in files.items()}))


def _manifest_text(files: Any) -> str:
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    return json.dumps({"files": files, "sha256": digest}, indent=1) + "\n"


def manifest_digest(folder: Path) -> str:
    """A hash of all that the folder's manifest says."""
    _read_manifest(folder)
    return str(read_json(folder / MANIFEST)["sha256"])


def _read_manifest(folder: Path) -> dict[str, Any]:
    manifest = read_json(folder / MANIFEST)
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict) or (folder / MANIFEST).read_text(encoding="utf-8") != _manifest_text(files):
        raise CheckpointError(f"{folder / MANIFEST} is damaged: it is not what was written")
    return files


def matches(folder: Path, name: str, path: Path) -> bool:
    """Whether the file is what the folder's manifest says of that name."""
    try:
        return _read_manifest(folder).get(name) == _fingerprint(path)
    except (CheckpointError, OSError):
        return False


def move(path: Path, target: Path) -> None:
    """Renames a file, and makes sure that this is on the disk."""
    path.replace(target)
    sync_folder(target.parent)


def check_folder(folder: Path, *, besides: Collection[str] = ()) -> None:
    """Raises CheckpointError, naming the file, unless the folder holds what its manifest says (besides some files)."""
    for name, expected in _read_manifest(folder).items():
        if name in besides:
            continue
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder / name} is missing")
        try:
            found = _fingerprint(folder / name)
        except OSError as error:
            raise CheckpointError(f"{folder / name} cannot be read: {error.strerror}") from error
        if found != expected:
            raise CheckpointError(f"{folder / name} is damaged: it is not what was written")


def _fingerprint(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def sync_folder(folder: Path) -> None:
    """Makes sure that the names in the folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

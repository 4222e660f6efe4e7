"""Manifests: the size and SHA-256 of each file of a folder. Damage is detected, and files change together or not at all.

Three ways to write: `staged` creates a folder that gets its name when it is complete; `replace_files` changes some files
of an existing folder; `remove_folder` deletes a folder. A crash leaves the state before or the state after.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from regard.errors import CheckpointError
from regard.storage.folder import LARGE, NEW, SMALL, Folder, is_temporary, parse_json
from regard.storage.paths import bare_name, temporary_name

MANIFEST = "manifest.json"
BLOCK = 512  # bytes; the unit of st_blocks
ATTEMPTS = 5  # reads of files that another process may be replacing

Fingerprints = dict[str, dict[str, Any]]  # size and sha256 by file name


def read_manifest(folder: Folder) -> Fingerprints:
    """Return the manifest's entry of each file."""
    text = folder.load_bytes(MANIFEST, limit=SMALL)
    manifest = parse_json(text, origin=folder.path / MANIFEST)
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict) or text != _manifest_text(files):
        raise CheckpointError(f"{folder.path / MANIFEST} is damaged: it is not what was written")
    for name in files:
        bare_name(name)
    return files


def manifest_digest(folder: Folder) -> str:
    """Return a hash of all entries of the folder's manifest."""
    return _digest(read_manifest(folder))


def _digest(files: Any) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _manifest_text(files: Any) -> bytes:
    try:
        return (json.dumps({"files": files, "sha256": _digest(files)}, indent=1) + "\n").encode()
    except (ValueError, RecursionError):  # for example an integer with thousands of digits
        return b""


def _fingerprint(folder: Folder, name: str) -> dict[str, Any]:
    with folder.open_file(name) as file:
        state = os.fstat(file.fileno())
        # Hashing a huge sparse file could take hours.
        blocks = getattr(state, "st_blocks", state.st_size)  # unknown on Windows
        if state.st_size > LARGE and 2 * BLOCK * blocks < state.st_size:
            raise CheckpointError(
                f"{folder.path / name} is damaged: most of its {state.st_size:,} bytes were never written"
            )
        try:
            return {
                "size": state.st_size,
                "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
            }
        except OSError as error:
            raise CheckpointError(f"{folder.path / name} cannot be read: {error.strerror}") from error


def _fingerprint_of(content: bytes) -> dict[str, Any]:
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


# Reading


def check_folder(folder: Folder, names: Collection[str] | None = None) -> None:
    """Raise CheckpointError, naming the file, unless these files (default: all) match the manifest."""
    for name in read_manifest(folder) if names is None else names:
        _check_file(folder, name)


def _check_file(folder: Folder, name: str) -> None:
    for _ in range(ATTEMPTS):
        expected = _expected(folder, name)
        if folder.has_file(_new(name)) and _fingerprint(folder, _new(name)) == expected:
            return
        size = expected.get("size") if isinstance(expected, dict) else None
        if folder.file_size(name) == size and _fingerprint(folder, name) == expected:
            return
        if _expected(folder, name) == expected:
            break
    raise CheckpointError(f"{folder.path / name} is damaged: it is not what was written")


def read_checked(folder: Folder, name: str, *, limit: int = LARGE) -> bytes:
    """Return the content of a file that matches the manifest; also if the matching file is still named `.NAME.new`."""
    for _ in range(ATTEMPTS):
        expected = _expected(folder, name)
        if folder.has_file(_new(name)):
            with suppress(CheckpointError):  # it may have been renamed just now
                content = folder.load_bytes(_new(name), limit=limit)
                if _fingerprint_of(content) == expected:
                    return content
        content = folder.load_bytes(name, limit=limit)
        if _fingerprint_of(content) == expected:
            return content
        if _expected(folder, name) == expected:
            break
    raise CheckpointError(f"{folder.path / name} is damaged: it is not what was written")


def _expected(folder: Folder, name: str) -> Any:
    files = read_manifest(folder)
    if name not in files:
        raise CheckpointError(f"{folder.path / MANIFEST} does not list {name}, which should be there")
    return files[name]


# Writing


@contextmanager
def staged(parent: Folder, name: str) -> Iterator[Folder]:
    """Yield a new folder to fill. At the end of the block it gets a manifest and is renamed to `name` in one step."""
    temporary = (parent.make() / temporary_name(name)).make()
    try:
        yield temporary
        _write_manifest(temporary)
        old = _move_aside(parent, name)
        parent.move(temporary.name, name)
    except Exception:
        with suppress(OSError):  # an incomplete folder must not keep a full disk full
            parent.remove(temporary.name)
        raise
    if old is not None:
        parent.remove(old)


def _write_manifest(folder: Folder) -> None:
    files = {name: _fingerprint(folder, name) for name in folder.names()}
    for name in files:
        folder.sync_file(name)
    folder.save_bytes(MANIFEST, _manifest_text(files))


def remove_folder(parent: Folder, name: str) -> None:
    """Delete a folder. It is renamed first, so that a reader finds all of it or nothing."""
    old = _move_aside(parent, name)
    if old is not None:
        parent.remove(old)


def _move_aside(parent: Folder, name: str) -> str | None:
    if name not in parent.names():
        return None
    aside = temporary_name(name).removesuffix(".tmp") + ".gone"
    parent.move(name, aside)
    return aside


def replace_files(folder: Folder, contents: Mapping[str, bytes], *, covered: Collection[str] = ()) -> None:
    """Replace some files of a folder and their manifest entries; after a crash all are old or all are new.

    `covered` names existing files to add to the manifest as they are.
    """
    with folder.briefly_locked():
        complete_replacement(folder)
        files = read_manifest(folder) if folder.has_file(MANIFEST) else {}
        for name, content in contents.items():
            folder.save_bytes(_new(name), content)
        files |= {name: _fingerprint(folder, name) for name in covered}
        files |= {name: _fingerprint_of(content) for name, content in contents.items()}
        folder.save_bytes(MANIFEST, _manifest_text(dict(sorted(files.items()))))
        for name in contents:
            folder.move(_new(name), name)


def complete_replacement(folder: Folder) -> None:
    """Finish what a killed `replace_files` left: rename new files that the manifest lists, and delete the others."""
    waiting = [name for name in folder.names() if name.startswith(".") and name.endswith(NEW)]
    files = read_manifest(folder) if waiting and folder.has_file(MANIFEST) else {}
    for new in waiting:
        name = new.removeprefix(".").removesuffix(NEW)
        if name in files and folder.has_file(new) and _fingerprint(folder, new) == files[name]:
            folder.move(new, name)
        else:
            folder.remove(new)


def sweep(folder: Folder) -> None:
    """Delete temporary files of killed processes. Call only while holding the folder's lock."""
    if any(map(is_temporary, folder.names())):
        with folder.briefly_locked():  # other processes may be replacing files
            for name in filter(is_temporary, folder.names()):
                folder.remove(name)


def _new(name: str) -> str:
    return f".{name}{NEW}"

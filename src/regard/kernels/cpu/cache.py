"""The user's cache folder of compiled libraries, and what must hold before a file in it is loaded.

FOLDER/                     a real directory, owned by us, not writable by others
  kernels-NAME.so           the library
  kernels-NAME.sha256       its hash and size; written last
  kernels-NAME.failed       why it could not be compiled or loaded; tried again after a day

A library runs with our rights as soon as it is loaded, and mapping a truncated one ends the process with a bus error. So its
owner, mode, type and hash are checked at every start, before anything is mapped.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REMEMBERED = 24 * 3600  # seconds until a failed build is tried again
LONGEST_RECORD = 4096  # bytes of a hash file or a failure
LARGEST_LIBRARY = 64 * 2**20  # bytes


def folder_problem(folder: Path) -> str | None:
    """Create the folder if it is missing; return why it cannot be trusted, or None."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    state = os.lstat(folder)
    if not stat.S_ISDIR(state.st_mode):
        return f"{folder} is not a directory (symbolic links are not followed)"
    if not _is_ours(state):
        return f"{folder} belongs to another user"
    if _others_can_write(state):
        return f"others can write into {folder}"
    return None


def is_intact(library: Path) -> bool:
    """Whether the library and its hash file are ours alone, and the hash is that of the library."""
    record, content = read_own(hash_file(library), LONGEST_RECORD), read_own(library, LARGEST_LIBRARY)
    return record is not None and content is not None and record == _record_of(content)


def publish(made: Path, library: Path) -> None:
    """Move a compiled library to its place, then its hash file: a crash in between leaves a library that is not trusted."""
    made.chmod(0o600)
    content = made.read_bytes()
    _sync(made)
    made.replace(library)
    _sync(library.parent)
    _write(hash_file(library), _record_of(content))
    failure_file(library).unlink(missing_ok=True)


def remembered_failure(library: Path) -> str | None:
    """Return why this library could not be built, if that was tried within the last day."""
    path = failure_file(library)
    content = read_own(path, LONGEST_RECORD)
    if content is None or not 0 <= time.time() - os.lstat(path).st_mtime < REMEMBERED:
        return None
    return content.decode(errors="replace").strip()


def remember_failure(library: Path, message: str) -> None:
    """Record the message, so that the next starts do not try again in vain."""
    _write(failure_file(library), message.encode()[: LONGEST_RECORD - 1] + b"\n")


def hash_file(library: Path) -> Path:
    return library.with_suffix(".sha256")


def failure_file(library: Path) -> Path:
    return library.with_suffix(".failed")


def read_own(path: Path, most: int) -> bytes | None:
    """Return the content of a regular file with one name, owned by us and writable by nobody else; else None."""
    try:
        if not _is_trusted(os.lstat(path), most):
            return None
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as file:
            # The path may have been replaced since lstat; what counts is what was opened.
            return file.read() if _is_trusted(os.fstat(descriptor), most) else None
    except OSError:
        return None


@contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """Create a directory with a random name in the folder, and remove it at the end."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as name:
        yield Path(name)


def _is_trusted(state: os.stat_result, most: int) -> bool:
    single = stat.S_ISREG(state.st_mode) and state.st_nlink == 1 and state.st_size <= most
    return single and _is_ours(state) and not _others_can_write(state)


def _is_ours(state: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or state.st_uid == os.getuid()


def _others_can_write(state: os.stat_result) -> bool:
    return hasattr(os, "getuid") and bool(state.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _record_of(content: bytes) -> bytes:
    return f"{hashlib.sha256(content).hexdigest()} {len(content)}\n".encode()


def _write(path: Path, content: bytes) -> None:
    with workspace(path.parent) as folder:
        made = folder / path.name
        made.touch(mode=0o600)
        made.write_bytes(content)
        _sync(made)
        made.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

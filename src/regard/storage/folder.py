"""A folder whose files are opened safely even if the content is untrusted: runs, stores, distilled corpora, shards.

Run folders are exchanged between people, so nothing inside one is trusted. Every file is opened relative to a descriptor
of its folder, symbolic links below the folder are not followed, only regular files are read, and every read has a size
limit. Writes go to a new file with a random name that then replaces the old file, so a crash leaves the old content or
the new content.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from regard.errors import CheckpointError
from regard.storage.paths import bare_name, refuse_wrong_kinds, temporary_name

MIB = 2**20
SMALL, LARGE = 16 * MIB, 512 * MIB  # default limits on the bytes read from one file
LOCK = ".lock"
T = TypeVar("T")
NEW = ".new"  # .NAME.new: a file that the manifest lists already but that does not have its final name yet

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse_json(content: bytes, *, origin: object) -> Any:
    """Return the value of a JSON document; raise CheckpointError also for nesting, numbers and text Python cannot hold."""

    def finite(text: str) -> float:
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"{text[:20]} is not a finite number")
        return number

    try:
        value = json.loads(content.decode(), parse_constant=finite, parse_float=finite)
        if _SURROGATE.search(content):  # an unpaired surrogate cannot be encoded again
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{origin} is damaged: {error}") from error


class Folder:
    """A folder below a root that the user named. The root may be a symbolic link; nothing below it may be one.

    Reading raises only `CheckpointError`. Writing may also raise `OSError`, for example when the disk is full.
    """

    def __init__(self, path: Path | str | Folder, *below: str) -> None:
        inside = path.below if isinstance(path, Folder) else ()
        self.root: Path = path.root if isinstance(path, Folder) else Path(path)
        self.below: tuple[str, ...] = (*inside, *map(bare_name, below))

    @property
    def path(self) -> Path:
        """The path, for messages and for files that the user names."""
        return self.root.joinpath(*self.below)

    @property
    def name(self) -> str:
        return self.path.name

    def __str__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> Folder:
        return Folder(self, name)

    @property
    def parent(self) -> Folder:
        """The folder that contains this one."""
        return Folder(self.root, *self.below[:-1]) if self.below else Folder(self.root.absolute().parent)

    # Opening

    @contextmanager
    def _descriptor(self) -> Iterator[int]:
        descriptor = os.open(self.root, _FOLDER_FLAGS)
        try:
            for name in self.below:
                inner = os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    @refuse_wrong_kinds
    def _open(self, name: str, flags: int) -> int:
        """Return a descriptor of a regular file. Does not block, not even on a pipe."""
        with self._descriptor() as folder:
            opened = os.open(bare_name(name), flags | os.O_NONBLOCK | _FILE_FLAGS, 0o666, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise OSError(errno.ENXIO, "not a regular file")
            os.set_blocking(opened, True)
        except BaseException:
            os.close(opened)
            raise
        return opened

    def open_file(self, name: str) -> BufferedReader:
        """Open a file for reading."""
        try:
            return os.fdopen(self._open(name, os.O_RDONLY), "rb")
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.path / name} is missing") from error
        except OSError as error:
            raise CheckpointError(f"{self.path / name} cannot be read: {error.strerror}") from error

    def create_file(self, name: str) -> BufferedWriter:
        """Create a file for writing; it must not exist yet."""
        return os.fdopen(self._open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")

    def append_file(self, name: str) -> BufferedWriter:
        """Open a file for appending; create it if it is missing. Files with several hard links are refused."""
        opened = self._open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if os.fstat(opened).st_nlink > 1:
            os.close(opened)
            raise CheckpointError(f"{self.path / name} has a second name elsewhere (a hard link); replace it by a copy")
        return os.fdopen(opened, "ab")

    # Inspecting

    def _kind(self, name: str) -> int:
        """Return the file type bits of an entry, without following links; 0 if there is no such entry."""
        try:
            with self._descriptor() as folder:
                return stat.S_IFMT(os.lstat(bare_name(name), dir_fd=folder).st_mode)
        except OSError:
            return 0

    def has_file(self, name: str) -> bool:
        return self._kind(name) == stat.S_IFREG

    def has_folder(self, name: str) -> bool:
        return self._kind(name) == stat.S_IFDIR

    def file_size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        with self.open_file(name) as file:
            return os.fstat(file.fileno()).st_size

    def names(self) -> list[str]:
        """Return all entries of the folder, sorted; an empty list if the folder does not exist."""
        try:
            with self._descriptor() as folder:
                return sorted(os.listdir(folder))
        except OSError:
            return []

    def size(self) -> int:
        """Return the total size in bytes of all files in the folder and below."""
        walk = os.fwalk(self.path)
        return sum(os.lstat(name, dir_fd=folder).st_size for _, _, names, folder in walk for name in names)

    # Reading

    def load_bytes(self, name: str, *, limit: int = LARGE) -> bytes:
        """Return the content of a file of at most `limit` bytes."""
        try:
            with self.open_file(name) as file:
                size = os.fstat(file.fileno()).st_size
                content = file.read(size + 1) if size <= limit else None
        except OSError as error:
            raise CheckpointError(f"{self.path / name} cannot be read: {error.strerror}") from error
        if content is None:
            raise CheckpointError(f"{self.path / name} is larger than such a file may be ({limit:,} bytes)")
        return content

    def load_text(self, name: str, *, limit: int = SMALL) -> str:
        try:
            return self.load_bytes(name, limit=limit).decode()
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self.path / name} is damaged: {error}") from error

    def load_json(self, name: str, *, limit: int = SMALL) -> Any:
        return parse_json(self.load_bytes(name, limit=limit), origin=self.path / name)

    def load_struct(self, name: str, kind: type[T], *, limit: int = SMALL) -> T:
        """Return a JSON file as a value of this type, such as a struct whose fields have bounds."""
        try:
            return msgspec.convert(self.load_json(name, limit=limit), kind)
        except msgspec.ValidationError as error:
            raise CheckpointError(f"{self.path / name} is damaged: {error}") from error

    # Writing

    def make(self) -> Folder:
        """Create the folder and its parents where they are missing, flush them to disk, and return the folder."""
        missing = [place for place in (self.root, *self.root.parents) if not place.exists()]
        self.root.mkdir(parents=True, exist_ok=True)
        for place in missing:
            _sync(place.absolute().parent)
        for depth in range(len(self.below)):
            Folder(self.root, *self.below[:depth])._make(self.below[depth])
        return self

    @refuse_wrong_kinds
    def _make(self, name: str) -> None:
        with self._descriptor() as folder:
            try:
                os.mkdir(name, dir_fd=folder)
            except FileExistsError:
                os.close(os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=folder))
            else:
                os.fsync(folder)

    @refuse_wrong_kinds
    def save_bytes(self, name: str, content: bytes) -> None:
        """Replace a file atomically; on return the new content is on disk."""
        with self._descriptor() as folder:
            temporary = temporary_name(bare_name(name))
            opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE_FLAGS, 0o666, dir_fd=folder)
            try:
                with os.fdopen(opened, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except Exception:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
            os.fsync(folder)

    def save_text(self, name: str, text: str) -> None:
        self.save_bytes(name, text.encode())

    def save_json(self, name: str, value: Any) -> None:
        self.save_text(name, json.dumps(value, ensure_ascii=False, indent=1) + "\n")

    @refuse_wrong_kinds
    def move(self, old: str, new: str) -> None:
        """Rename an entry of this folder and flush the change to disk."""
        with self._descriptor() as folder:
            os.replace(bare_name(old), bare_name(new), src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    def remove(self, name: str) -> None:
        """Delete a file, a link, or a folder with everything in it; links are not followed."""
        with self._descriptor() as folder:
            if stat.S_ISDIR(os.lstat(bare_name(name), dir_fd=folder).st_mode):
                shutil.rmtree(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    def sync(self) -> None:
        """Flush the entries of this folder to disk."""
        with self._descriptor() as folder:
            os.fsync(folder)

    @contextmanager
    def locked(self, *, busy: str) -> Iterator[None]:
        """Lock the folder; raise CheckpointError(busy) if another process holds it. The lock ends with the process."""
        opened = self.make()._open(LOCK, os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise CheckpointError(busy) from error
            yield
        finally:
            os.close(opened)

    @contextmanager
    def briefly_locked(self) -> Iterator[None]:
        """Wait for a short exclusive lock to change a few files; independent of `locked`, whose holder needs it too."""
        with self._descriptor() as folder:
            with suppress(OSError):  # some network file systems cannot lock a folder
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield


def is_temporary(name: str) -> bool:
    """Return whether the name is of an entry that a killed process was writing or removing."""
    return name.startswith(".") and name.endswith((".tmp", ".gone"))


def is_leftover(name: str) -> bool:
    """Return whether the name is of an entry that a killed process may have left, to be removed or renamed."""
    return is_temporary(name) or (name.startswith(".") and name.endswith(NEW))


def _sync(folder: Path) -> None:
    opened = os.open(folder, _FOLDER_FLAGS)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)

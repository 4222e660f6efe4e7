"""A folder whose files are opened safely even if the content is untrusted: runs, stores, distilled corpora, shards.

Run folders are exchanged between people, so nothing inside one is trusted. Every file is opened relative to its folder
(`directory.py`), symbolic links below the folder are not followed, only regular files are read, and every read has a size
limit. Writes go to a new file with a random name that then replaces the old file, so a crash leaves the old content or
the new content.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from regard.errors import Busy, CheckpointError, ConfigError
from regard.storage.directory import LOCK, PathDirectory, open_directory
from regard.storage.locks import try_lock
from regard.storage.paths import bare_name, refuse_wrong_kinds, temporary_name

MIB = 2**20
SMALL, LARGE = 16 * MIB, 512 * MIB  # default limits on the bytes read from one file
T = TypeVar("T")
NEW = ".new"  # .NAME.new: a file that the manifest lists already but that does not have its final name yet

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

    def _directory(self) -> AbstractContextManager[PathDirectory]:
        return open_directory(self.root, self.below)

    @refuse_wrong_kinds
    def _open(self, name: str, flags: int) -> int:
        """Return a descriptor of a regular file. Does not block, not even on a pipe."""
        with self._directory() as folder:
            return folder.open_entry(bare_name(name), flags)

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
            with self._directory() as folder:
                return stat.S_IFMT(folder.state(bare_name(name)).st_mode)
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
            with self._directory() as folder:
                return sorted(folder.names())
        except OSError:
            return []

    def size(self) -> int:
        """Return the total size in bytes of all files in the folder and below."""
        walk = os.walk(self.path)
        return sum(os.lstat(os.path.join(place, name)).st_size for place, _, names in walk for name in names)

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
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise ConfigError(
                f"cannot make the folder {self.root}: a file or a broken link has its name, or that of a folder above it"
            ) from error
        for place in missing:
            with open_directory(place.absolute().parent) as parent:
                parent.sync()
        for depth in range(len(self.below)):
            Folder(self.root, *self.below[:depth])._make(self.below[depth])
        return self

    @refuse_wrong_kinds
    def _make(self, name: str) -> None:
        with self._directory() as folder:
            try:
                folder.make(name)
            except FileExistsError:
                folder.refuse_other_than_folder(name)
            else:
                folder.sync()

    @refuse_wrong_kinds
    def save_bytes(self, name: str, content: bytes) -> None:
        """Replace a file atomically; on return the new content is on disk."""
        with self._directory() as folder:
            temporary = temporary_name(bare_name(name))
            opened = folder.open_entry(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                with os.fdopen(opened, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                folder.replace(temporary, name)
            except Exception:
                with suppress(OSError):
                    folder.remove(temporary)
                raise
            folder.sync()

    def save_text(self, name: str, text: str) -> None:
        self.save_bytes(name, text.encode())

    def save_json(self, name: str, value: Any) -> None:
        self.save_text(name, json.dumps(value, ensure_ascii=False, indent=1) + "\n")

    @refuse_wrong_kinds
    def move(self, old: str, new: str) -> None:
        """Rename an entry of this folder and flush the change to disk."""
        with self._directory() as folder:
            folder.replace(bare_name(old), bare_name(new))
            folder.sync()

    def remove(self, name: str) -> None:
        """Delete a file, a link, or a folder with everything in it; links are not followed."""
        with self._directory() as folder:
            if stat.S_ISDIR(folder.state(bare_name(name)).st_mode):
                folder.remove_folder(name)
            else:
                folder.remove(name)
            folder.sync()

    def sync(self) -> None:
        """Flush the entries of this folder to disk."""
        with self._directory() as folder:
            folder.sync()

    def sync_file(self, name: str) -> None:
        """Flush the content of a file to disk. Windows flushes only what is open for writing."""
        opened = self._open(name, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)

    @contextmanager
    def locked(self, *, busy: str) -> Iterator[None]:
        """Lock the folder; raise Busy with this text if another process holds it. The lock ends with the process."""
        opened = self.make()._open(LOCK, os.O_RDWR | os.O_CREAT)
        try:
            if not self._try_lock(opened):
                raise Busy(busy)
            yield
        finally:
            os.close(opened)

    def _try_lock(self, opened: int) -> bool:
        try:
            return try_lock(opened)
        except OSError as error:
            raise CheckpointError(
                f"{self.path / LOCK} cannot be locked ({error.strerror}), so two processes could write at the same time; "
                "use a folder on a disk whose file system has locks"
            ) from error

    @contextmanager
    def briefly_locked(self) -> Iterator[None]:
        """Wait for a short exclusive lock to change a few files; independent of `locked`, whose holder needs it too."""
        with self._directory() as folder:
            with suppress(OSError):  # some network file systems cannot lock a folder
                folder.lock()
            yield


def is_temporary(name: str) -> bool:
    """Return whether the name is of an entry that a killed process was writing or removing."""
    return name.startswith(".") and name.endswith((".tmp", ".gone"))


def is_leftover(name: str) -> bool:
    """Return whether the name is of an entry that a killed process may have left, to be removed or renamed."""
    return is_temporary(name) or (name.startswith(".") and name.endswith(NEW))

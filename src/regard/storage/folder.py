"""A folder whose files are opened safely, whoever made it: runs, stores, distilled corpora, sharded translations.

Run folders are made to be given away, so nothing inside one is trusted: every file is opened relative to a descriptor of its
folder, no symbolic link below the folder is followed, only regular files are read, and every read has a size limit. Writes
go to a new file with a random name that then takes the place of the old one, so a crash leaves the old file or the new one.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from regard.errors import CheckpointError

MIB = 2**20
NEW = ".new"  # .NAME.new: a file that a manifest names already, but that has not taken its name yet
SMALL, LARGE = 16 * MIB, 512 * MIB  # bytes read of a file, unless the caller knows better

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC
# What a path that is not what it should be answers, as opposed to a disk that is full or broken.
_WRONG_KIND = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.ENOTEMPTY)

LOCK = ".lock"

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

P = ParamSpec("P")
T = TypeVar("T")


def bare_name(name: str) -> str:
    """The name itself, if it names an entry of a folder and nothing beyond it."""
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name or len(name) > 255:
        raise CheckpointError(f"{name[:80]!r} is not a file name; a folder's files are named without a path")
    return name


def parse_json(content: bytes, *, origin: object) -> Any:
    """The value of a JSON document. Nesting, numbers and text that Python cannot hold are errors of ours like any other."""

    def finite(text: str) -> float:
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"{text[:20]} is not a finite number")
        return number

    try:
        value = json.loads(content.decode(), parse_constant=finite, parse_float=finite)
        if _SURROGATE.search(content):  # half of a pair is no character, and cannot be written anywhere
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{origin} is damaged: {error}") from error


def _refuses_wrong_kinds(method: Callable[P, T]) -> Callable[P, T]:
    """Turn links and folders where files belong into a CheckpointError; other errors of the system pass."""

    @wraps(method)
    def checked(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return method(*arguments, **options)
        except OSError as error:
            if error.errno not in _WRONG_KIND:
                raise
            folder, *rest = arguments
            assert isinstance(folder, Folder)
            path = folder.path / str(rest[0]) if rest else folder.path
            raise CheckpointError(_what_is_wrong(folder.root, path)) from error

    return checked


def _what_is_wrong(root: Path, path: Path) -> str:
    """A sentence about the first entry between the root and the path that is not what it should be."""
    below = path.relative_to(root).parts
    for depth in range(1, len(below) + 1):
        entry = root.joinpath(*below[:depth])
        with suppress(OSError):
            if stat.S_ISLNK(entry.lstat().st_mode):
                return (
                    f"{entry} is a symbolic link; links inside a folder are not followed, so put the file itself there"
                )
    return f"{path} is not a regular file where one belongs, or not a folder where one belongs"


class Folder:
    """A folder below a root that the user named. The root may be a link, for the user named it; nothing below it may.

    Reading raises `CheckpointError` whatever is wrong; writing also raises `OSError`, as for a disk that is full.
    """

    def __init__(self, path: Path | str | Folder, *below: str) -> None:
        inside = path.below if isinstance(path, Folder) else ()
        self.root: Path = path.root if isinstance(path, Folder) else Path(path)
        self.below: tuple[str, ...] = (*inside, *map(bare_name, below))

    @property
    def path(self) -> Path:
        """For messages, and for files that the user names."""
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
        """The folder around this one; of a root, the one that it lies in."""
        return Folder(self.root, *self.below[:-1]) if self.below else Folder(self.root.absolute().parent)

    # Opening

    @contextmanager
    def _descriptor(self) -> Iterator[int]:
        descriptor = os.open(self.root, _FOLDER)
        try:
            for name in self.below:
                inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    @_refuses_wrong_kinds
    def _open(self, name: str, flags: int) -> int:
        """A descriptor of a regular file; opening does not wait, as it would for a pipe."""
        with self._descriptor() as folder:
            opened = os.open(bare_name(name), flags | os.O_NONBLOCK | _FILE, 0o666, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise OSError(errno.ENXIO, "not a regular file")
            os.set_blocking(opened, True)
        except BaseException:
            os.close(opened)
            raise
        return opened

    def open_file(self, name: str) -> BufferedReader:
        """A file of this folder, to read."""
        try:
            return os.fdopen(self._open(name, os.O_RDONLY), "rb")
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.path / name} is missing") from error
        except OSError as error:
            raise CheckpointError(f"{self.path / name} cannot be read: {error.strerror}") from error

    def create_file(self, name: str) -> BufferedWriter:
        """A new file of this folder, to write; there must be none of that name."""
        return os.fdopen(self._open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")

    def append_file(self, name: str) -> BufferedWriter:
        """A file of this folder, to write at its end. One that other folders share by a hard link is refused."""
        opened = self._open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if os.fstat(opened).st_nlink > 1:
            os.close(opened)
            raise CheckpointError(f"{self.path / name} has another name elsewhere (a hard link); put a copy there")
        return os.fdopen(opened, "ab")

    # What is there

    def _kind(self, name: str) -> int:
        """The type bits of an entry, itself and not what it may link to; 0 where there is none."""
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
        """Bytes of a file."""
        with self.open_file(name) as file:
            return os.fstat(file.fileno()).st_size

    def names(self) -> list[str]:
        """Everything in the folder, sorted; nothing where there is no folder."""
        try:
            with self._descriptor() as folder:
                return sorted(os.listdir(folder))
        except OSError:
            return []

    def size(self) -> int:
        """Bytes of all files in the folder and below."""
        walk = os.fwalk(self.path)
        return sum(os.lstat(name, dir_fd=folder).st_size for _, _, names, folder in walk for name in names)

    # Reading

    def load_bytes(self, name: str, *, limit: int = LARGE) -> bytes:
        """The content of a file of at most `limit` bytes."""
        try:
            with self.open_file(name) as file:
                size = os.fstat(file.fileno()).st_size
                content = file.read(size + 1) if size <= limit else None
        except OSError as error:
            raise CheckpointError(f"{self.path / name} cannot be read: {error.strerror}") from error
        if content is None:
            raise CheckpointError(f"{self.path / name} is larger than any such file of ours ({limit:,} bytes)")
        return content

    def load_text(self, name: str, *, limit: int = SMALL) -> str:
        try:
            return self.load_bytes(name, limit=limit).decode()
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self.path / name} is damaged: {error}") from error

    def load_json(self, name: str, *, limit: int = SMALL) -> Any:
        return parse_json(self.load_bytes(name, limit=limit), origin=self.path / name)

    # Writing

    def make(self) -> Folder:
        """Itself, once it is there and on the disk."""
        missing = [place for place in (self.root, *self.root.parents) if not place.exists()]
        self.root.mkdir(parents=True, exist_ok=True)
        for place in missing:
            _sync(place.absolute().parent)
        for depth in range(len(self.below)):
            Folder(self.root, *self.below[:depth])._make(self.below[depth])
        return self

    @_refuses_wrong_kinds
    def _make(self, name: str) -> None:
        with self._descriptor() as folder:
            try:
                os.mkdir(name, dir_fd=folder)
            except FileExistsError:
                os.close(os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder))
            else:
                os.fsync(folder)

    @_refuses_wrong_kinds
    def save_bytes(self, name: str, content: bytes) -> None:
        """Replaces a file's content in one step; on return it is on the disk."""
        with self._descriptor() as folder:
            temporary = temporary_name(bare_name(name))
            opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o666, dir_fd=folder)
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

    @_refuses_wrong_kinds
    def move(self, old: str, new: str) -> None:
        """Gives an entry of this folder another name, on the disk too."""
        with self._descriptor() as folder:
            os.replace(bare_name(old), bare_name(new), src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    def remove(self, name: str) -> None:
        """Deletes a file, a link, or a folder with everything in it; links are not followed."""
        with self._descriptor() as folder:
            if stat.S_ISDIR(os.lstat(bare_name(name), dir_fd=folder).st_mode):
                shutil.rmtree(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    def sync(self) -> None:
        """Makes sure that the names in this folder are on the disk."""
        with self._descriptor() as folder:
            os.fsync(folder)

    @contextmanager
    def locked(self, *, busy: str) -> Iterator[None]:
        """Holds the folder against a second writer, who gets `busy` as an error. The lock ends with the process."""
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
        """Waits its turn to change a few files. A process that holds the folder (`locked`) takes its turns like others."""
        with self._descriptor() as folder:
            with suppress(OSError):  # not every network file system can lock a folder
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield


def temporary_name(name: str) -> str:
    """A name that nobody can have put there first."""
    return f".{name}.{secrets.token_hex(8)}.tmp"


def is_temporary(name: str) -> bool:
    """Whether this was being written, or removed, when a process was killed."""
    return name.startswith(".") and name.endswith((".tmp", ".gone"))


def is_leftover(name: str) -> bool:
    """Whether a killed process may have left this behind, to be removed or put in its place."""
    return is_temporary(name) or (name.startswith(".") and name.endswith(NEW))


def _sync(folder: Path) -> None:
    opened = os.open(folder, _FOLDER)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)

"""One open directory. Its entries are opened relative to a descriptor of it, or by path where a system has no such calls.

With a descriptor, a link that is put in the place of a folder meanwhile is not followed. By path (Windows), every folder on
the way is checked before each call, so links that are there are refused as well.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.storage.locks import wait_for_lock

LOCK = ".lock"  # the file that is locked while a folder is written
# The byte of that file for short locks, where a folder cannot be locked itself. The first one is for the others.
SHORT_LOCK = 1

_HAS_DESCRIPTORS = {os.open, os.mkdir, os.stat, os.unlink, os.rename} <= os.supports_dir_fd
_CLOSED_IN_CHILDREN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0)
_AS_BYTES = getattr(os, "O_BINARY", 0)  # Windows would translate line ends


class PathDirectory:
    """A directory by its path. `below` are the names from a trusted root to it."""

    def __init__(self, root: Path, below: Sequence[str]) -> None:
        self.path = root
        for name in below:
            self.path /= name
            _refuse_link(self.path)
        if not stat.S_ISDIR(os.stat(self.path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory")
        self._locked: list[int] = []

    def close(self) -> None:
        while self._locked:
            os.close(self._locked.pop())

    def open_entry(self, name: str, flags: int) -> int:
        """Return a descriptor of a regular file. Does not block, not even on a pipe."""
        path = self.path / name
        with suppress(FileNotFoundError):
            _refuse_link(path)
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise OSError(errno.ENXIO, "not a regular file")
        return os.open(path, flags | _AS_BYTES | _CLOSED_IN_CHILDREN, 0o666)

    def state(self, name: str) -> os.stat_result:
        """Return the state of an entry, without following links."""
        return os.lstat(self.path / name)

    def names(self) -> list[str]:
        return os.listdir(self.path)

    def make(self, name: str) -> None:
        """Create a folder. Raise FileExistsError if there is an entry of this name."""
        os.mkdir(self.path / name)

    def refuse_other_than_folder(self, name: str) -> None:
        """Raise OSError unless the entry is a folder."""
        PathDirectory(self.path, [name]).close()

    def replace(self, old: str, new: str) -> None:
        os.replace(self.path / old, self.path / new)

    def remove(self, name: str) -> None:
        """Delete a file or a link."""
        os.unlink(self.path / name)

    def remove_folder(self, name: str) -> None:
        """Delete a folder with everything in it; links are not followed."""
        shutil.rmtree(self.path / name)

    def sync(self) -> None:
        """Do nothing: only an open directory can be flushed to disk."""

    def lock(self) -> None:
        """Wait for a lock that ends when the directory is closed. Raise OSError if the directory cannot be locked."""
        self._locked.append(self.open_entry(LOCK, os.O_RDWR | os.O_CREAT))
        wait_for_lock(self._locked[-1], byte=SHORT_LOCK)


class DescriptorDirectory(PathDirectory):
    """A directory by a descriptor of it."""

    def __init__(self, root: Path, below: Sequence[str]) -> None:
        self._descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in below:
                inner = self._open_folder(name)
                os.close(self._descriptor)
                self._descriptor = inner
        except BaseException:
            os.close(self._descriptor)
            raise

    def close(self) -> None:
        os.close(self._descriptor)

    def open_entry(self, name: str, flags: int) -> int:
        flags |= os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        opened = os.open(name, flags, 0o666, dir_fd=self._descriptor)
        try:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise OSError(errno.ENXIO, "not a regular file")
            os.set_blocking(opened, True)
        except BaseException:
            os.close(opened)
            raise
        return opened

    def _open_folder(self, name: str) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(name, flags, dir_fd=self._descriptor)

    def state(self, name: str) -> os.stat_result:
        return os.lstat(name, dir_fd=self._descriptor)

    def names(self) -> list[str]:
        return os.listdir(self._descriptor)

    def make(self, name: str) -> None:
        os.mkdir(name, dir_fd=self._descriptor)

    def refuse_other_than_folder(self, name: str) -> None:
        os.close(self._open_folder(name))

    def replace(self, old: str, new: str) -> None:
        os.replace(old, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self._descriptor)

    def remove_folder(self, name: str) -> None:
        shutil.rmtree(name, dir_fd=self._descriptor)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def lock(self) -> None:
        wait_for_lock(self._descriptor)


@contextmanager
def open_directory(root: Path, below: Sequence[str] = ()) -> Iterator[PathDirectory]:
    """Open the directory that these names lead to from a root; links below the root are refused with an OSError."""
    opened = (DescriptorDirectory if _HAS_DESCRIPTORS else PathDirectory)(root, below)
    try:
        yield opened
    finally:
        opened.close()


def _refuse_link(path: Path) -> None:
    state = os.lstat(path)
    # Windows also has junctions, which are links to folders.
    if stat.S_ISLNK(state.st_mode) or getattr(state, "st_reparse_tag", False):
        raise OSError(errno.ELOOP, "a link")

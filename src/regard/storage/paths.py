"""Names of files inside a folder, and the errors for entries that are not what they should be."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from regard.errors import CheckpointError

# Error numbers for an entry of the wrong kind, as opposed to a full or broken disk.
_WRONG_KIND = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.ENOTEMPTY)


class HasPath(Protocol):
    """A folder below a root that the user named."""

    root: Path

    @property
    def path(self) -> Path: ...


F = TypeVar("F", bound=HasPath)
P = ParamSpec("P")
T = TypeVar("T")


def bare_name(name: str) -> str:
    """Return the name unchanged; raise CheckpointError unless it names a direct entry of a folder."""
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name or len(name) > 255:
        raise CheckpointError(f"{name[:80]!r} is not a file name; files in a folder are named without a path")
    return name


def temporary_name(name: str) -> str:
    """Return a random name for writing the file `name`; nobody can predict it and put a link there first."""
    return f".{name}.{os.urandom(8).hex()}.tmp"


def refuse_wrong_kinds(method: Callable[Concatenate[F, P], T]) -> Callable[Concatenate[F, P], T]:
    """Decorate a method of `Folder` to raise CheckpointError for a symbolic link, or for a folder where a file is expected.

    Other OSErrors, such as a full disk, pass through.
    """

    @wraps(method)
    def checked(folder: F, /, *arguments: P.args, **options: P.kwargs) -> T:
        try:
            return method(folder, *arguments, **options)
        except OSError as error:
            if error.errno not in _WRONG_KIND:
                raise
            path = folder.path / str(arguments[0]) if arguments else folder.path
            raise CheckpointError(_describe_wrong_kind(folder.root, path)) from error

    return checked


def _describe_wrong_kind(root: Path, path: Path) -> str:
    """Return a sentence about the first entry between `root` and `path` that is not what it should be."""
    below = path.relative_to(root).parts
    for depth in range(1, len(below) + 1):
        entry = root.joinpath(*below[:depth])
        with suppress(OSError):
            if stat.S_ISLNK(entry.lstat().st_mode):
                return f"{entry} is a symbolic link; links inside a folder are not followed; put the file itself there"
    return f"{path} is not a regular file where one is expected, or not a folder where one is expected"

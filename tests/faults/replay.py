"""A model of a POSIX file system after a crash: computes every state that a power failure may leave from a log.

`record.c` writes the log. Each operation becomes a change of the data or size of one file, or of directory entries. POSIX
guarantees that a change survives a crash once fsync has returned: for data, fsync of the file; for a directory entry,
fsync of the directory (fsync of the file does not make its name durable). Until then each change may be lost independently
of all others, which includes any reordering. Only a rename is atomic: both of its entries change, or none.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

HEADER = struct.Struct("<BIIQQ")  # as in record.c
SECTOR = 512
ROOT = 0
NOTHING_UNSYNCED = "nothing unsynced is applied"
RANDOM_SUBSETS = 4  # per prefix

Tree = dict[str, bytes | str | None]  # by path: content of a file, target of a symbolic link, or None for a directory


@dataclass(frozen=True)
class Operation:
    """One record of the log. Kinds: Open, Write, Truncate, Fsync, Directory, Unlink, Rename, Link, sYmlink, Mark."""

    kind: str
    path: str
    target: str = ""
    number: int = 0  # offset, size, or whether opening truncates
    data: bytes = b""

    def __str__(self) -> str:
        target = f" -> {self.target}" if self.target else ""
        detail = f" at {self.number}, {len(self.data)} bytes" if self.kind == "W" else ""
        return f"{self.kind} {self.path}{target}{detail}"


def read_log(path: Path) -> list[Operation]:
    """Return the operations of a log in order."""
    content, place, operations = path.read_bytes() if path.exists() else b"", 0, []
    while place < len(content):
        kind, *sizes, number, size = HEADER.unpack_from(content, place)
        place += HEADER.size
        fields = []
        for length in (*sizes, size):
            fields.append(content[place : place + length])
            place += length
        operations.append(Operation(chr(kind), fields[0].decode(), fields[1].decode(), number, fields[2]))
    return operations


@dataclass(frozen=True)
class Change:
    """The effect of an operation: directory entries, or the data or size of a file."""

    at: int  # number of the operation
    entries: tuple[tuple[int, str, int | None], ...] = ()  # (directory, name, file or None for removed)
    moved: bool = False  # a rename: the file loses every other name
    inode: int = -1  # of a change of data or size
    offset: int = 0
    data: bytes = b""
    size: int | None = None  # the new size, where it is set
    variant: str = ""  # how a write was torn

    @property
    def key(self) -> tuple[int, str]:
        return self.at, self.variant


@dataclass
class State:
    """One state of the folder that a crash may leave."""

    tree: Tree
    digest: str
    after: int  # number of operations before the crash
    how: str  # what happened to unsynced changes


@dataclass
class Recording:
    """The changes of a log, and when each becomes durable."""

    operations: Sequence[Operation]
    changes: list[Change] = field(default_factory=list)
    # The operation that made a change durable, by the change's `at`
    durable_at: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._directories = {ROOT}
        self._links: dict[int, str] = {}  # targets of symbolic links
        self._many_names: set[int] = set()  # files with hard links
        self._names: dict[tuple[int, str], int] = {}
        self._pending: dict[int, set[int]] = {}  # by operation: inodes that have yet to be fsynced
        self._contents: dict[tuple[tuple[int, str], ...], tuple[bytes, str]] = {}
        self._count = 1
        for number, operation in enumerate(self.operations):
            self._compile(number, operation)

    # From operations to changes

    def _find(self, path: str) -> int:
        inode = ROOT
        for name in PurePosixPath(path).parts:
            inode = self._names[inode, name]
        return inode

    def _slot(self, path: str) -> tuple[int, str]:
        pure = PurePosixPath(path)
        return self._find(str(pure.parent) if pure.parent.parts else ""), pure.name

    def _enter(self, number: int, *entries: tuple[int, str, int | None], moved: bool = False) -> None:
        for directory, name, inode in entries:
            if inode is None:
                self._names.pop((directory, name), None)
            else:
                self._names[directory, name] = inode
        self.changes.append(Change(number, entries=entries, moved=moved))
        self._pending[number] = {directory for directory, _, _ in entries}

    def _new(self) -> int:
        self._count += 1
        return self._count - 1

    def _compile(self, number: int, operation: Operation) -> None:
        kind, path = operation.kind, operation.path
        if kind == "O":
            if self._slot(path) not in self._names:
                self._enter(number, (*self._slot(path), self._new()))
            elif operation.number:
                self._change_data(Change(number, inode=self._find(path), size=0))
        elif kind == "W":
            self._change_data(Change(number, inode=self._find(path), offset=operation.number, data=operation.data))
        elif kind == "T":
            self._change_data(Change(number, inode=self._find(path), size=operation.number))
        elif kind == "F":
            self._sync(number, self._find(path))
        elif kind == "D":
            inode = self._new()
            self._directories.add(inode)
            self._enter(number, (*self._slot(path), inode))
        elif kind == "U":
            self._enter(number, (*self._slot(path), None))
        elif kind == "R":
            source, target = self._slot(path), self._slot(operation.target)
            self._enter(number, (*source, None), (*target, self._find(path)), moved=True)
        elif kind == "L":
            self._many_names.add(self._find(path))
            self._enter(number, (*self._slot(operation.target), self._find(path)))
        elif kind == "Y":
            inode = self._new()
            self._links[inode] = operation.target
            self._enter(number, (*self._slot(path), inode))
        else:
            assert kind == "M", operation

    def _change_data(self, change: Change) -> None:
        self.changes.append(change)
        self._pending[change.at] = {change.inode}

    def _sync(self, number: int, inode: int) -> None:
        for at, waiting in list(self._pending.items()):
            waiting.discard(inode)
            if not waiting:
                del self._pending[at]
                self.durable_at[at] = number

    # From changes to states

    def marks(self, after: int) -> list[str]:
        """Return what the recorded program had reported before the crash."""
        return [operation.path for operation in self.operations[:after] if operation.kind == "M"]

    def unsynced(self, after: int) -> list[Change]:
        return [change for change in self.changes if change.at < after <= self.durable_at.get(change.at, after)]

    def final(self) -> Tree:
        """Return the folder with all changes applied."""
        return self._tree(self.changes)[0]

    def states(self, seed: int = 0, *, sample: int | None = None) -> Iterator[State]:
        """Yield every distinct state of all prefixes or of a sample. Of equal ones the latest is kept: it must hold most."""
        found: dict[str, State] = {}
        prefixes = list(range(len(self.operations) + 1))
        if sample is not None and sample < len(prefixes):
            prefixes = sorted([*random.Random(seed).sample(prefixes[:-1], sample - 1), prefixes[-1]])
        for after in prefixes:
            issued = [change for change in self.changes if change.at < after]
            unsynced = {change.at for change in self.unsynced(after)}
            for how, changes in _variants(issued, unsynced, random.Random(f"{seed}-{after}")):
                tree, digest = self._tree(changes)
                if digest not in found or found[digest].after < after:
                    found[digest] = State(tree, digest, after, how)
        yield from found.values()

    def _tree(self, changes: Iterable[Change]) -> tuple[Tree, str]:
        names: dict[int, dict[str, int]] = {}
        data: dict[int, list[Change]] = {}
        for change in changes:
            if change.inode >= 0:
                data.setdefault(change.inode, []).append(change)
            if change.moved and change.entries[-1][2] not in self._many_names:
                _remove(names, change.entries[-1][2])
            for directory, name, inode in change.entries:
                if inode is None:
                    names.get(directory, {}).pop(name, None)
                else:
                    names.setdefault(directory, {})[name] = inode
        tree: Tree = {}
        digest = hashlib.sha256()
        waiting = [("", ROOT)]
        while waiting:
            folder, directory = waiting.pop()
            for name, inode in sorted(names.get(directory, {}).items()):
                path = f"{folder}/{name}" if folder else name
                if inode in self._directories:
                    waiting.append((path, inode))
                    tree[path], content_digest = None, "directory"
                elif inode in self._links:
                    tree[path], content_digest = self._links[inode], f"link {self._links[inode]}"
                else:
                    tree[path], content_digest = self._content(data.get(inode, []))
                digest.update(f"{path}\0{content_digest}\0".encode())
        return tree, digest.hexdigest()

    def _content(self, changes: list[Change]) -> tuple[bytes, str]:
        key = tuple(change.key for change in changes)
        if key not in self._contents:
            content = bytearray()
            for change in changes:
                if change.size is not None:
                    content = content[: change.size].ljust(change.size, b"\0")
                else:
                    end = change.offset + len(change.data)
                    content = content.ljust(end, b"\0")
                    content[change.offset : end] = change.data
            self._contents[key] = bytes(content), hashlib.sha256(content).hexdigest()
        return self._contents[key]


def _remove(names: dict[int, dict[str, int]], inode: int | None) -> None:
    """Remove a file under every name: after a lost rename it is not where a later rename expects it."""
    for entries in names.values():
        for name in [name for name, found in entries.items() if found == inode]:
            del entries[name]


def _variants(issued: list[Change], unsynced: set[int], generator: random.Random) -> Iterator[tuple[str, list[Change]]]:
    """Yield descriptions and subsets of the changes that a crash may leave."""
    yield "everything is applied", issued
    if not unsynced:
        return

    def only(kept: set[int]) -> list[Change]:
        return [change for change in issued if change.at not in unsynced or change.at in kept]

    entries = {change.at for change in issued if change.entries and change.at in unsynced}
    yield NOTHING_UNSYNCED, only(set())
    yield "unsynced data is lost", only(entries)
    yield "unsynced data is zeros", [_zeros(one) if one.at in unsynced else one for one in issued]
    yield "unsynced directory entries are lost", only(unsynced - entries)
    for number in sorted(unsynced):
        yield f"operation {number} is lost", only(unsynced - {number})
        yield f"of the unsynced operations only {number} is applied", only({number})
    last = max((change for change in issued if change.data), key=lambda change: change.at, default=None)
    if last is not None and last.at in unsynced:
        for torn in _torn(last):
            yield f"operation {last.at} is torn: {torn.variant}", [torn if one is last else one for one in issued]
            alone = only({last.at})
            yield f"only operation {last.at}, torn: {torn.variant}", [torn if one is last else one for one in alone]
    for number in range(RANDOM_SUBSETS):
        kept = {at for at in sorted(unsynced) if generator.random() < 0.5}
        yield f"random subset {number}: {sorted(unsynced - kept)} are lost", only(kept)


def _zeros(change: Change) -> Change:
    return replace(change, data=bytes(len(change.data)), variant="zeros") if change.data else change


def _torn(change: Change) -> Iterator[Change]:
    """Yield torn versions of a write: cut by bytes, by sectors, and with its size but not its data on disk."""
    data = change.data
    if len(data) > 1:
        yield replace(change, data=data[: len(data) // 2], variant="its first half")
        yield replace(change, data=bytes(len(data) // 2) + data[len(data) // 2 :], variant="its second half")
    yield _zeros(change)
    if len(data) > SECTOR:
        yield replace(change, data=data[:SECTOR], variant="its first sector")
        sectors = [data[place : place + SECTOR] for place in range(0, len(data), SECTOR)]
        every_other = b"".join(one if number % 2 else bytes(len(one)) for number, one in enumerate(sectors))
        yield replace(change, data=every_other, variant="every other sector")


def read_tree(folder: Path) -> Tree:
    """Read the content of a folder."""
    tree: Tree = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            tree[name] = str(path.readlink())
        else:
            tree[name] = None if path.is_dir() else path.read_bytes()
    return tree


def write_tree(tree: Tree, folder: Path) -> None:
    """Create a folder with this content."""
    folder.mkdir(parents=True)
    for name, content in sorted(tree.items()):
        if content is None:
            (folder / name).mkdir()
        elif isinstance(content, str):
            (folder / name).symlink_to(content)
        else:
            (folder / name).write_bytes(content)

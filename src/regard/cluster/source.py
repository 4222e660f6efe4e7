"""The input: its files in order, and the shards that they are cut into."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from regard.cluster.formats import Chunk, Format
from regard.errors import DataError

MOST_LINES_PER_BYTE = 1000  # of a file that compresses very well


class SourceFile(msgspec.Struct, frozen=True):
    """One file of the input, and how to know it again."""

    name: str
    size: int
    modified: int  # nanoseconds
    sha256: str
    lines: int


class TextShard(NamedTuple):
    """Some lines of one file, translated by one worker and written as one file."""

    number: int
    file: SourceFile
    first: int  # line number, from 1
    size: int  # lines

    def __str__(self) -> str:
        return f"lines {self.first} to {self.first + self.size - 1} of {self.file.name}"


def find_files(given: str) -> list[Path]:
    """The file of that name, or the files in that folder, or those that match the pattern; in order of their names."""
    path = Path(given)
    if path.is_file():
        return [path]
    candidates = path.iterdir() if path.is_dir() else map(Path, glob.glob(given, recursive=True))
    found = sorted(one for one in candidates if one.is_file() and not one.name.startswith((".", "_")))
    if not found:
        raise DataError(f"there is no text at {given}; give a file, a folder of files, or a pattern in quotes")
    return found


def survey(paths: Iterable[Path], layout: Format, known: Iterable[SourceFile] = ()) -> list[SourceFile]:
    """What there is to translate. Every line is read once, so that bad text is told before any work is done.

    A known file of the same size and time is taken to be the same.
    """
    before = {file.name: file for file in known}
    files = []
    for path in paths:
        status, old = path.stat(), before.get(str(path))
        same = old is not None and (old.size, old.modified) == (status.st_size, status.st_mtime_ns)
        if old is None or not same or not 0 <= old.lines <= MOST_LINES_PER_BYTE * (old.size + 1):
            lines = layout.count(path)
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            old = SourceFile(str(path), status.st_size, status.st_mtime_ns, digest, lines)
        files.append(old)
    return files


def cut(files: Iterable[SourceFile], shard_lines: int) -> list[TextShard]:
    """The shards in order. A shard never holds lines of two files."""
    borders = ((file, first) for file in files for first in range(0, file.lines, shard_lines))
    return [
        TextShard(number, file, first + 1, min(shard_lines, file.lines - first))
        for number, (file, first) in enumerate(borders)
    ]


def read_shards(
    shards: Iterable[TextShard], layout: Format, shard_lines: int, wanted: Container[int]
) -> Iterator[tuple[TextShard, Chunk]]:
    """The wanted shards with their text. A file without any is not opened."""
    by_file: dict[str, list[TextShard]] = {}
    for shard in shards:
        by_file.setdefault(shard.file.name, []).append(shard)
    for name, parts in by_file.items():
        left = sum(shard.number in wanted for shard in parts)
        chunks = layout.chunks(Path(name), shard_lines)
        for shard in parts:
            if not left:
                break
            chunk = next(chunks, None)
            if chunk is None or len(chunk.texts()) != shard.size:
                raise DataError(f"{name} has changed while it was translated; give the command again")
            if shard.number in wanted:
                left -= 1
                yield shard, chunk

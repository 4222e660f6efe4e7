"""The input files, the shards that they are split into, and the output folder with one file per shard.

OUTPUT/
  shards.json       the input files with their hashes, the hash of the model, the search options
  part-00000.txt    the first shard; a part that exists is complete
  part-00001.txt    ...
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from regard.cluster.formats import FileFormat, ShardRows
from regard.errors import CheckpointError, DataError
from regard.storage.resumable import ResumableFolder

SETTINGS = "shards.json"
MAX_LINES_PER_BYTE = 1000  # of a file that compresses very well


class SourceFile(msgspec.Struct, frozen=True):
    """One input file, and what identifies its content."""

    name: str
    size: int
    modified: int  # nanoseconds
    sha256: str
    lines: int


class TextShard(NamedTuple):
    """Consecutive lines of one input file, translated by one worker and written to one output file."""

    number: int
    file: SourceFile
    first: int  # line number, from 1
    size: int  # lines

    def __str__(self) -> str:
        return f"lines {self.first} to {self.first + self.size - 1} of {self.file.name}"


def find_files(given: str) -> list[Path]:
    """Return the file, the files in the folder, or the files that match the pattern, sorted by name."""
    path = Path(given)
    if path.is_file():
        return [path]
    candidates = path.iterdir() if path.is_dir() else map(Path, glob.glob(given, recursive=True))
    found = sorted(one for one in candidates if one.is_file() and not one.name.startswith((".", "_")))
    if not found:
        raise DataError(f"there is no text at {given}; give a file, a folder of files, or a quoted pattern")
    return found


def scan_files(paths: Iterable[Path], layout: FileFormat, known: Iterable[SourceFile] = ()) -> list[SourceFile]:
    """Count the lines of the files and hash them. Invalid text is reported here, before any work is done.

    A known file with the same size and modification time is not read again.
    """
    before = {file.name: file for file in known}
    files = []
    for path in paths:
        status, old = path.stat(), before.get(str(path))
        same = old is not None and (old.size, old.modified) == (status.st_size, status.st_mtime_ns)
        if old is None or not same or not 0 <= old.lines <= MAX_LINES_PER_BYTE * (old.size + 1):
            lines = layout.count(path)
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            old = SourceFile(str(path), status.st_size, status.st_mtime_ns, digest, lines)
        files.append(old)
    return files


def split_into_shards(files: Iterable[SourceFile], shard_lines: int) -> list[TextShard]:
    """Return the shards in order. A shard never holds lines of two files."""
    starts = ((file, first) for file in files for first in range(0, file.lines, shard_lines))
    return [
        TextShard(number, file, first + 1, min(shard_lines, file.lines - first))
        for number, (file, first) in enumerate(starts)
    ]


def read_shards(
    shards: Iterable[TextShard], layout: FileFormat, shard_lines: int, wanted: Container[int]
) -> Iterator[tuple[TextShard, ShardRows]]:
    """Yield the wanted shards with their rows. A file without wanted shards is not opened."""
    by_file: dict[str, list[TextShard]] = {}
    for shard in shards:
        by_file.setdefault(shard.file.name, []).append(shard)
    for name, own in by_file.items():
        left = sum(shard.number in wanted for shard in own)
        parts = layout.split(Path(name), shard_lines)
        for shard in own:
            if not left:
                break
            rows = next(parts, None)
            if rows is None or len(rows.texts()) != shard.size:
                raise DataError(f"{name} has changed during translation; run the command again")
            if shard.number in wanted:
                left -= 1
                yield shard, rows


class OutputSettings(msgspec.Struct, frozen=True):
    """Everything that the output depends on."""

    files: list[SourceFile]
    column: str | None  # of Parquet files
    shard_lines: int
    run: str  # for the reader; only the hash is compared
    model: str  # SHA-256
    search: dict[str, Any]

    def compared(self) -> dict[str, Any]:
        """Return the settings that must be equal to resume the folder, under names for an error message."""
        files = {f"the text of {file.name}": (file.sha256, file.lines) for file in self.files}
        search = {key.replace("_", " "): value for key, value in self.search.items()}
        names = [file.name for file in self.files]
        sizes = {"column": self.column, "shard lines": self.shard_lines, "the weights of the run": self.model}
        return {"input files": names, **files, **sizes, **search}


class OutputFolder:
    """The finished shards."""

    def __init__(self, path: Path, suffix: str) -> None:
        self.path, self.suffix, self.folder = path, suffix, ResumableFolder(path, settings=SETTINGS)
        self.digits = 5

    @contextmanager
    def opened(self) -> Iterator[OutputSettings | None]:
        """Lock the folder and yield the settings that it was started with; None if it is new."""
        with self.folder.opened() as stored:
            yield None if stored is None else self._parse(stored)

    def _parse(self, stored: dict[str, Any]) -> OutputSettings:
        try:
            return msgspec.convert(stored, OutputSettings)
        except msgspec.ValidationError as error:
            place = self.path / SETTINGS
            raise CheckpointError(f"{place} is damaged ({error}); choose another folder") from error

    def begin(self, settings: OutputSettings, stored: OutputSettings | None, num_shards: int) -> None:
        """Write the settings; raise ConfigError if they differ from the stored ones."""
        # Names sort in the order of shards.
        self.digits = max(5, len(str(num_shards - 1)))
        if stored is not None:
            self.folder.refuse_changes(stored.compared(), settings.compared())
        if settings != stored:
            self.folder.save_json(SETTINGS, msgspec.to_builtins(settings))

    def part(self, shard: TextShard) -> str:
        """Return the name of a shard's file."""
        return f"part-{shard.number:0{self.digits}d}{self.suffix}"

    def is_done(self, shard: TextShard) -> bool:
        return self.folder.has_file(self.part(shard))

    def write(self, shard: TextShard, content: bytes) -> None:
        """Write a shard atomically."""
        self.folder.save_bytes(self.part(shard), content)

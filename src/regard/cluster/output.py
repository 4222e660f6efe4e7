"""The output folder: one file per shard, and the settings that they were made with.

OUTPUT/
  shards.json       the input files with their hashes, the hash of the model, the search options
  part-00000.txt    the first shard; a part that exists is complete
  part-00001.txt    ...
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from regard.cluster.shards import SourceFile, TextShard
from regard.errors import CheckpointError
from regard.storage.resumable import ResumableFolder

SETTINGS = "shards.json"


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

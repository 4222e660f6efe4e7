"""The output folder: one file a shard, and what they were made from.

OUTPUT/
  shards.json       the input's files with their hashes, the model's hash, the options
  part-00000.txt    the first shard; a part that is there is whole
  part-00001.txt    ...
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from regard.cluster.source import SourceFile, TextShard
from regard.errors import CheckpointError, ConfigError
from regard.storage.folder import LOCK, Folder, is_temporary
from regard.storage.manifest import sweep

PLAN = "shards.json"


class Plan(msgspec.Struct, frozen=True):
    """All that the output depends on."""

    files: list[SourceFile]
    column: str | None  # of Parquet files
    shard_lines: int
    run: str  # for a person; the hash is what counts
    model: str
    search: dict[str, Any]

    def settings(self) -> dict[str, Any]:
        """What two commands on one folder must agree about, in a person's words."""
        files = {f"the text of {file.name}": (file.sha256, file.lines) for file in self.files}
        search = {key.replace("_", " "): value for key, value in self.search.items()}
        names = [file.name for file in self.files]
        sizes = {"column": self.column, "shard lines": self.shard_lines, "the weights of the run": self.model}
        return {"input files": names, **files, **sizes, **search}


class OutputFolder:
    """The finished shards."""

    def __init__(self, path: Path, suffix: str) -> None:
        self.path, self.suffix, self.folder = path, suffix, Folder(path)
        self.digits = 5

    def held(self) -> AbstractContextManager[None]:
        """Holds the folder against a second command."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file; with --ray the output is a folder, so name another")
        return self.folder.locked(busy=f"another command is writing {self.path}; wait for it, or name another folder")

    def plan(self) -> Plan | None:
        """What the folder was begun with; None if it is new."""
        if self.folder.has_file(PLAN):
            try:
                return msgspec.convert(self.folder.load_json(PLAN), Plan)
            except msgspec.ValidationError as error:
                raise CheckpointError(f"{self.path / PLAN} is damaged ({error}); name another folder") from error
        if any(name != LOCK and not is_temporary(name) for name in self.folder.names()):
            raise ConfigError(f"{self.path} holds files but no {PLAN}, so they are not ours; name another folder")
        return None

    def begin(self, plan: Plan, before: Plan | None, num_shards: int) -> None:
        """Writes the plan down, or refuses one that is not the one before."""
        sweep(self.folder)
        self.digits = max(5, len(str(num_shards - 1)))  # so that the order of names is the order of numbers
        if before is not None:
            was, now = before.settings(), plan.settings()
            for name in [name for name in {**was, **now} if was.get(name) != now.get(name)]:
                short = all(isinstance(value, int | float | str) for value in (was.get(name), now.get(name)))
                values = f" ({was[name]} then, {now[name]} now)" if short and len(str(was[name])) < 60 else ""
                raise ConfigError(
                    f"{self.path} was begun otherwise, {name} differs{values}; "
                    "give what it was begun with, or name another folder"
                )
        if plan != before:
            self.folder.save_json(PLAN, msgspec.to_builtins(plan))

    def part(self, shard: TextShard) -> str:
        """The name of a shard's file."""
        return f"part-{shard.number:0{self.digits}d}{self.suffix}"

    def is_done(self, shard: TextShard) -> bool:
        return self.folder.has_file(self.part(shard))

    def write(self, shard: TextShard, content: bytes) -> None:
        """Writes a shard, in one step."""
        self.folder.save_bytes(self.part(shard), content)

"""Writing one shard of a store, and reading what a finished one says of itself."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec
import numpy as np

from regard.data.lengths import LengthTable
from regard.data.shard_file import OFFSETS
from regard.data.sharded import SIDES, shard_name
from regard.data.store import IdStore
from regard.errors import CheckpointError
from regard.run.files import check_folder, seal_folder, write_json
from regard.text.corpus import Pair


class ShardInfo(msgspec.Struct, frozen=True):
    """shard.json"""

    pairs: int
    source_tokens: int
    target_tokens: int
    source_text: str  # sha256 of its lines
    target_text: str
    lengths: list[list[int]]


class TextHash:
    """Hashes of both sides of some pairs, one sentence a line, however they are cut into chunks."""

    def __init__(self) -> None:
        self._digests = [hashlib.sha256() for _ in SIDES]

    def update(self, pairs: Sequence[Pair]) -> None:
        for digest, texts in zip(self._digests, zip(*pairs, strict=True), strict=True):
            digest.update(("\n".join(texts) + "\n").encode())

    def hexdigests(self) -> tuple[str, str]:
        source, target = (digest.hexdigest() for digest in self._digests)
        return source, target


@dataclass(frozen=True)
class EncodedChunk:
    """A chunk of pairs and its ids."""

    pairs: list[Pair]
    source: IdStore
    target: IdStore


class ShardWriter:
    """Writes a shard under a temporary name as chunks come; `seal` gives it its own."""

    def __init__(self, folder: Path, number: int) -> None:
        self.final = folder / shard_name(number)
        self.temporary = folder / f".{shard_name(number)}.tmp"
        self.pairs = 0
        self.tokens = [0, 0]
        self._text = TextHash()
        self._lengths = LengthTable.from_rows([])
        self._files: list[tuple[BinaryIO, BinaryIO]] = []

    def __enter__(self) -> ShardWriter:
        if self.temporary.exists():
            shutil.rmtree(self.temporary)
        self.temporary.mkdir()
        for side in SIDES:
            ids, offsets = ((self.temporary / f"{side}.{name}").open("wb") for name in ("ids", "offsets"))
            offsets.write(np.zeros(1, dtype=OFFSETS).tobytes())
            self._files.append((ids, offsets))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for ids, offsets in self._files:
            ids.close()
            offsets.close()

    def add(self, chunk: EncodedChunk) -> None:
        for side, store in enumerate((chunk.source, chunk.target)):
            ids, offsets = self._files[side]
            ids.write(store.ids.astype(store.ids.dtype.newbyteorder("<"), copy=False).tobytes())
            offsets.write((store.offsets[1:] + self.tokens[side]).astype(OFFSETS).tobytes())
            self.tokens[side] += len(store.ids)
        self._lengths += LengthTable.of(chunk.source.lengths, chunk.target.lengths)
        self._text.update(chunk.pairs)
        self.pairs += len(chunk.pairs)

    def seal(self) -> None:
        """Ends the shard: from here on it is there whatever happens."""
        self.__exit__(None, None, None)
        (source_tokens, target_tokens), (source_text, target_text) = self.tokens, self._text.hexdigests()
        lengths = self._lengths.rows()
        info = ShardInfo(self.pairs, source_tokens, target_tokens, source_text, target_text, lengths)
        write_json(self.temporary / "shard.json", msgspec.to_builtins(info))
        seal_folder(self.temporary, self.final)


def read_shard(folder: Path) -> ShardInfo:
    """What a whole shard says of itself; CheckpointError if it is not whole."""
    check_folder(folder)
    try:
        return msgspec.json.decode((folder / "shard.json").read_bytes(), type=ShardInfo)
    except (OSError, msgspec.DecodeError) as error:
        raise CheckpointError(f"{folder / 'shard.json'} is damaged: {error}") from error


def finished_shards(folder: Path) -> list[ShardInfo]:
    """The first shards of a store that are whole, up to one that is not."""
    found: list[ShardInfo] = []
    while (path := folder / shard_name(len(found))).exists():
        try:
            found.append(read_shard(path))
        except CheckpointError:
            break
    return found

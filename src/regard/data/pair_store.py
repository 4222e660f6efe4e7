"""Sentence pairs on disk, for corpora larger than memory: ids in shards, read one block of pairs at a time.

DIR/
  settings.json     what the store is made from; written first
  tokenizer/        vocabularies, manifest.json
  shard-00000/      source.ids, source.offsets, target.ids, target.offsets, shard.json, manifest.json
  left-out.tsv      text that was left out, if any was: file, line, reason, beginning
  store.json        sizes, lengths and hashes of everything; written last: a folder with it is a complete store

Arrays are raw and little-endian: offsets have 64 bits, ids 16 if the vocabulary allows it, else 32.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from regard.config import TokenizerConfig
from regard.data.columns import Column, Columns, Indices, LengthTable, LengthTotals, pair_columns
from regard.data.shard_file import OFFSETS, ShardSide, check_size
from regard.errors import ConfigError, DataError
from regard.storage.folder import Folder
from regard.text.corpus import Pair
from regard.text.tokenizer_pair import Tokenizers, load_tokenizers
from regard.toml import flat_table, to_table

VERSION = 1
STORE, SETTINGS = "store.json", "settings.json"
IDS: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "int32": np.dtype("<i4")}
SIDES = ("source", "target")


class Shard(msgspec.Struct, frozen=True):
    """The entry of one shard in store.json."""

    pairs: int
    source_tokens: int
    target_tokens: int
    sha256: str  # of its manifest, hence of every file in it


class StoreInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of store.json. `sha256` is the hash of all other entries, and so of the complete store."""

    version: int
    pairs: int
    source_tokens: int
    target_tokens: int
    source_ids: str  # uint16 or int32
    target_ids: str
    tokenizer: dict[str, Any]
    tokenizer_sha256: str
    lengths: list[list[int]]  # the rows of a LengthTable
    shards: list[Shard]
    tags: tuple[str, ...] = ()  # symbols that every source begins with
    source_cut: int = 0  # tokens that sources are cut to; 0: they are not cut
    target_cut: int = 0
    left_out: dict[str, int] = {}  # lines of the text by the reason why
    mended: dict[str, int] = {}  # places of the text by what was mended or noted
    sha256: str = ""

    def digest(self) -> str:
        """Return what sha256 must be."""
        table = msgspec.to_builtins(msgspec.structs.replace(self, sha256=""))
        return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def tokenizer_settings(config: TokenizerConfig) -> dict[str, Any]:
    """Return the settings that the ids in a store depend on: all but sampling, which changes them in every epoch."""
    table = to_table(config)
    for part in (table, table.get("source", {}), table.get("target", {})):
        part.pop("sampling", None)
    return table


def shard_name(number: int) -> str:
    """Return the name of the folder of a shard."""
    return f"shard-{number:05d}"


class PairStore:
    """An opened store. Opening it checks the sizes of files; `regard data check` checks their hashes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.info = _read_info(folder)
        _check_counts(folder / STORE, self.info)
        self.begins = np.cumsum([0, *(shard.pairs for shard in self.info.shards)])
        self.lengths = LengthTable.from_rows(self.info.lengths)
        self.longest = self.lengths.upto().longest
        for number, shard in enumerate(self.info.shards):
            for name, size in self._sizes(shard).items():
                check_size(Folder(folder, shard_name(number)), name, size)

    def _sizes(self, shard: Shard) -> dict[str, int]:
        """Return the size of each file of a shard in bytes."""
        sizes = {}
        for side in SIDES:
            sizes[f"{side}.ids"] = getattr(shard, f"{side}_tokens") * self._dtype(side).itemsize
            sizes[f"{side}.offsets"] = (shard.pairs + 1) * OFFSETS.itemsize
        return sizes

    def _dtype(self, side: str) -> np.dtype[Any]:
        return IDS[getattr(self.info, f"{side}_ids")]

    def side(self, side: str, shard: int, vocabulary: int | None = None) -> ShardSide:
        """Return one side of a shard. Ids are checked against the size of the vocabulary, if given."""
        info = self.info.shards[shard]
        return ShardSide(
            Folder(self.folder, shard_name(shard)),
            side,
            self._dtype(side),
            pairs=info.pairs,
            tokens=getattr(info, f"{side}_tokens"),
            longest=self.longest,
            vocabulary=vocabulary,
        )

    # Training data

    def __len__(self) -> int:
        return self.info.pairs

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of pairs, as that of a single corpus."""
        return (self.info.pairs,)

    def fingerprints(self) -> list[dict[str, int | str]]:
        """Return number and hash of the pairs."""
        return [{"pairs": self.info.pairs, "sha256": self.info.sha256}]

    def examples(self) -> list[Pair]:
        """Raise DataError: a store has no text."""
        raise DataError(f"{self.folder} holds ids and no text")

    def tokenizers(self, config: TokenizerConfig) -> Tokenizers:
        """Return the tokenizers that made the ids. Raise ConfigError if the recipe describes others."""
        stored, asked = flat_table(self.info.tokenizer), flat_table(tokenizer_settings(config))
        for key in {**stored, **asked}:
            given, value = asked.get(key), stored.get(key)
            # Left out, it is whatever the store was prepared with.
            if given != value and not (given is None and key.endswith("byte_fallback")):
                advice = f"set tokenizer.{key}={json.dumps(value)}" if key in stored else "leave it out"
                raise ConfigError(
                    f"tokenizer.{key} is {given!r}, but {self.folder} was prepared with {value!r}; {advice}, "
                    "or prepare another store"
                )
        return load_tokenizers(Folder(self.folder, "tokenizer"))

    def encoded(self, tokenizers: Tokenizers) -> StoredPairs:
        """Return the pairs as a dataset that reads ids from the disk."""
        return StoredPairs(self, (tokenizers.source.size, tokenizers.target.size))


class StoredPairs:
    """A dataset of pairs on disk. Ids are read when they are needed, in the order of the files."""

    sized: tuple[str, ...] = SIDES

    def __init__(self, store: PairStore, vocabularies: tuple[int, int] | None = None) -> None:
        self.store = store
        self.vocabularies: dict[str, int] = dict(zip(SIDES, vocabularies, strict=True)) if vocabularies else {}

    def __len__(self) -> int:
        return len(self.store)

    def lengths_of(self, rows: Indices) -> tuple[Indices, ...]:
        # A mixture of corpora may draw a pair more than once; it is read once.
        distinct, places = np.unique(rows, return_inverse=True)
        lengths = (np.concatenate(self._by_shard(side, distinct, ShardSide.lengths_of)) for side in SIDES)
        return tuple(one[places] for one in lengths)

    def upto(self, max_length: int | None) -> LengthTotals:
        return self.store.lengths.upto(max_length)

    def read(self, batches: list[Indices]) -> tuple[Columns, list[Indices]]:
        distinct, places = np.unique(np.concatenate(batches), return_inverse=True)
        source, target = (Column.join(self._by_shard(side, distinct, ShardSide.take)) for side in SIDES)
        return pair_columns(source, target), np.split(places, np.cumsum([len(batch) for batch in batches])[:-1])

    def _by_shard(self, side: str, rows: Indices, read: Callable[[ShardSide, Indices], Any]) -> list[Any]:
        """Call `read` for each shard that contains some of these sorted rows, and return the results."""
        vocabulary = self.vocabularies.get(side)
        return [read(self.store.side(side, shard, vocabulary), part) for shard, part in self._parts(rows)]

    def _parts(self, rows: Indices) -> Iterator[tuple[int, Indices]]:
        """Yield each shard that contains some of these sorted rows, and their numbers in it."""
        bounds = np.searchsorted(rows, self.store.begins)
        for shard, (begin, end) in enumerate(pairwise(bounds.tolist())):
            if begin < end:
                yield shard, rows[begin:end] - self.store.begins[shard]


def _read_info(folder: Path) -> StoreInfo:
    path, store = folder / STORE, Folder(folder)
    if STORE not in store.names():
        half = store.has_file(SETTINGS)
        what = f"{folder} is half prepared; resume it" if half else f"there is no store in {folder}; make one"
        raise DataError(f"{what} with: regard data prepare RECIPE --out {folder}")
    try:
        info = msgspec.json.decode(store.load_bytes(STORE), type=StoreInfo)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({error}); restore it, or prepare the store again") from error
    if info.version != VERSION:
        raise DataError(f"{path} is of version {info.version}, this regard reads {VERSION}; prepare the store again")
    if info.sha256 != info.digest():
        raise DataError(f"{path} is damaged: it is not what was written; restore it, or prepare the store again")
    return info


def _check_counts(path: Path, info: StoreInfo) -> None:
    """Raise DataError if the numbers in store.json contradict each other: arrays are allocated and indexed by them."""
    rows, shards = info.lengths, info.shards
    tokens = max(info.source_tokens, info.target_tokens)
    fits = (
        {info.source_ids, info.target_ids} <= IDS.keys()
        and all(len(row) == 4 and min(row) >= 0 and row[0] <= tokens for row in rows)
        and all(min(shard.pairs, shard.source_tokens, shard.target_tokens) >= 0 for shard in shards)
        and info.pairs == sum(shard.pairs for shard in shards) == sum(row[1] for row in rows)
        and info.source_tokens == sum(shard.source_tokens for shard in shards) == sum(row[2] for row in rows)
        and info.target_tokens == sum(shard.target_tokens for shard in shards) == sum(row[3] for row in rows)
    )
    if not fits:
        raise DataError(f"{path} has numbers that contradict each other; restore it, or prepare the store again")

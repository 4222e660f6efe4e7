"""A store of ids from text of any size: `regard data prepare`. Killed at any instant it goes on from its last whole shard.

The text is read once to check it, count it and sample it for the tokenizers; then it is encoded a chunk at a time. A stream
can be read only once: its first pairs are the sample. Nothing here imports torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec

from regard.config import Bitext, Recipe, TokenizerConfig
from regard.data.columns import Column
from regard.data.lengths import LengthTable
from regard.data.pair_store import SETTINGS, STORE, VERSION, PairStore, Shard, StoreInfo, shard_name
from regard.errors import CheckpointError, ConfigError, DataError
from regard.preprocess.chunks import CHUNK_PAIRS, chunks_of, side_by_side
from regard.preprocess.sample import first_sample, spread_sample
from regard.preprocess.shards import EncodedChunk, ShardInfo, ShardWriter, TextHash, finished_shards
from regard.storage.folder import Folder, is_temporary
from regard.storage.manifest import check_folder, manifest_digest, staged
from regard.text.bitext import STDIN, stream_bitext, text_files
from regard.text.corpus import Pair
from regard.text.tokenizer import TOKENIZERS, Tokenizers, load_tokenizers, train_tokenizers
from regard.toml import flat_table, to_table

PAIRS_A_SHARD = 2**20
TOKENS_A_SHARD = 2**27  # of a side; at most two bytes each for most vocabularies


@dataclass(frozen=True)
class PrepareProgress:
    """How far preparing is."""

    doing: str
    pairs: int  # done, those of earlier attempts among them
    total: int | None  # None: the text is a stream
    before: int = 0  # done by earlier attempts
    seconds: float = 0.0  # since this one began on the rest


Report = Callable[[PrepareProgress], None]


def prepare(recipe: Recipe, out: Path, *, folders: list[Path], report: Report = lambda progress: None) -> PairStore:
    """The store of a recipe's training pairs, made in the folder `out`, or finished there, or found finished."""
    text = recipe.data.train
    settings = _settings(recipe, folders)
    folder = Folder(out)
    _refuse_other(folder, settings)
    if folder.has_file(STORE):
        return PairStore(out)
    with folder.locked(busy=f"another process is preparing {out}; wait for it, or name another --out"):
        done = finished_shards(folder)
        _sweep(folder, len(done))
        pairs: Iterator[Pair]
        if done:
            total = _read_settings(folder).get("pairs")
            tokenizers = _load_tokenizers(folder)
            pairs = stream_bitext(text, folders=folders)
        else:
            tokenizers, pairs, total = _begin(text, recipe.tokenizer, folders, folder, report)
            folder.save_json(SETTINGS, {**settings, "pairs": total})
        _pass_over(done, pairs, folder, report, total)
        _encode(pairs, tokenizers, folder, done, report, total)
        _finish(folder, tokenizers, settings["tokenizer"])
    return PairStore(out)


def _settings(recipe: Recipe, folders: list[Path]) -> dict[str, Any]:
    """What a store follows from; of files their names and sizes, of their text the hashes are in the shards."""
    text = recipe.data.train
    names = [name for name in (text.pairs, text.source, text.target, text.generate) if name is not None]
    if not names:
        raise ConfigError("data.train names a store but no text to make it of; name source and target, or pairs")
    files = [] if STDIN in names or text.generate is not None else text_files(text, folders)
    TOKENIZERS.get(recipe.tokenizer.kind, where="tokenizer.kind")
    tokenizer = to_table(recipe.tokenizer)
    if tokenizer.pop("sampling"):
        raise ConfigError("ids on disk are the same every epoch; set tokenizer.sampling=0 to prepare a store")
    return {
        "version": VERSION,
        "tokenizer": tokenizer,
        "text": [Path(name).name for name in names],
        "bytes": [path.stat().st_size for path in files],
        "pairs_a_shard": PAIRS_A_SHARD,
    }


def _read_settings(out: Folder) -> dict[str, Any]:
    found = out.load_json(SETTINGS)
    if not isinstance(found, dict) or not isinstance(found.get("pairs", 0), int | None):
        raise CheckpointError(f"{out.path / SETTINGS} is damaged: it is not what was written")
    return found


def _refuse_other(out: Folder, settings: dict[str, Any]) -> None:
    if not out.has_file(SETTINGS):
        found = [out.name] if out.path.is_file() else out.names()
        if any(not name.startswith(".") and name != "tokenizer" for name in found):
            raise ConfigError(f"{out} is there already and is no store; name another folder with --out")
        return
    before, now = flat_table(_read_settings(out)), flat_table(settings)
    changed = [f"{key}: {before.get(key)} -> {now[key]}" for key in now if before.get(key) != now[key]]
    if changed:
        raise ConfigError(
            f"{out} holds a store of other settings ({'; '.join(changed)}); name another folder with --out, "
            "or give the settings it was begun with"
        )


def _sweep(out: Folder, intact: int) -> None:
    """Removes what a killed process left half written, and what comes after the shards that are intact."""
    kept = {shard_name(number) for number in range(intact)}
    for name in out.names():
        if is_temporary(name) or (name.startswith("shard-") and name not in kept):
            out.remove(name)


def _begin(
    text: Bitext, config: TokenizerConfig, folders: list[Path], out: Folder, report: Report
) -> tuple[Tokenizers, Iterator[Pair], int | None]:
    """Tokenizers, written down; the pairs from the first on; and how many there are, where that can be known."""
    pairs = stream_bitext(text, folders=folders)
    total: int | None = None
    if text.pairs == STDIN:
        sample, pairs = first_sample(pairs)
    else:

        def look(count: int) -> None:
            if count % CHUNK_PAIRS == 0:
                report(PrepareProgress("reading and checking", count, None))

        sample, total = spread_sample(pairs, look)
        pairs = stream_bitext(text, folders=folders)
    report(PrepareProgress(f"learning {config.kind} from {len(sample):,} pairs", 0, total))
    tokenizers = train_tokenizers(
        sample, kind=config.kind, size=config.size, joint=config.joint, coverage=config.coverage
    )
    with staged(out, "tokenizer") as folder:
        tokenizers.save(folder)
    return tokenizers, pairs, total


def _load_tokenizers(out: Folder) -> Tokenizers:
    check_folder(out / "tokenizer")
    return load_tokenizers(out / "tokenizer")


def _pass_over(done: list[ShardInfo], pairs: Iterator[Pair], out: Folder, report: Report, total: int | None) -> None:
    """Reads past the pairs of finished shards, and makes sure that they are the ones those were made of."""
    count = 0
    for number, shard in enumerate(done):
        text = TextHash()
        for chunk in chunks_of(islice(pairs, shard.pairs)):
            text.update(chunk)
            count += len(chunk)
            report(PrepareProgress("reading past finished shards", count, total))
        if text.hexdigests() != (shard.source_text, shard.target_text):
            raise DataError(
                f"the text has changed since {out / shard_name(number)} was made; put it back, or prepare it anew "
                "in another folder (--out)"
            )


def _encode(
    pairs: Iterator[Pair], tokenizers: Tokenizers, out: Folder, done: list[ShardInfo], report: Report, total: int | None
) -> None:
    """Writes the shards that are left."""
    source_ids, target_ids = id_types(tokenizers)

    def encode(chunk: list[Pair]) -> EncodedChunk:
        source = tokenizers.source.encode_all([pair.source for pair in chunk])
        target = tokenizers.target.encode_all([pair.target for pair in chunk])
        return EncodedChunk(chunk, Column.from_lists(source, source_ids), Column.from_lists(target, target_ids))

    number, before, started = len(done), sum(shard.pairs for shard in done), time.monotonic()
    count = before
    chunks = side_by_side(encode, chunks_of(pairs))
    for first in chunks:
        with ShardWriter(out, number) as shard:
            for chunk in chain([first], chunks):
                shard.add(chunk)
                count += len(chunk.pairs)
                report(PrepareProgress("encoding", count, total, before, time.monotonic() - started))
                if shard.pairs >= PAIRS_A_SHARD or max(shard.tokens) >= TOKENS_A_SHARD:
                    break
        number += 1
    if not count:
        raise DataError("there are no pairs to prepare; the text is empty")


def id_types(tokenizers: Tokenizers) -> tuple[str, str]:
    """The smallest numbers that hold the ids of each side."""
    source, target = ("uint16" if one.size <= 2**16 else "int32" for one in (tokenizers.source, tokenizers.target))
    return source, target


def _finish(out: Folder, tokenizers: Tokenizers, tokenizer: dict[str, Any]) -> None:
    """Writes store.json, which makes the folder a store."""
    shards = finished_shards(out)
    lengths = sum((LengthTable.from_rows(shard.lengths) for shard in shards), LengthTable.from_rows([]))
    totals = lengths.upto()
    source_tokens, target_tokens = totals.tokens
    source_ids, target_ids = id_types(tokenizers)
    entries = [
        Shard(shard.pairs, shard.source_tokens, shard.target_tokens, manifest_digest(out / shard_name(number)))
        for number, shard in enumerate(shards)
    ]
    info = StoreInfo(
        version=VERSION,
        pairs=totals.examples,
        source_tokens=source_tokens,
        target_tokens=target_tokens,
        source_ids=source_ids,
        target_ids=target_ids,
        tokenizer=tokenizer,
        tokenizer_sha256=manifest_digest(out / "tokenizer"),
        lengths=lengths.rows(),
        shards=entries,
    )
    info = msgspec.structs.replace(info, sha256=info.digest())
    out.save_json(STORE, msgspec.to_builtins(info))

"""Conversion of text of any size to a store of ids: `regard data prepare`. A killed process resumes after its last shard.

The text is read twice: once to check it, count it and sample it for the tokenizers, and once to encode it in chunks. A
stream can be read only once, so its first pairs are the sample. Nothing here imports torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec

from regard.config import Bitext, DataConfig, Recipe
from regard.data.columns import Column, LengthTable
from regard.data.pair_store import SETTINGS, STORE, VERSION, PairStore, Shard, StoreInfo, shard_name, tokenizer_settings
from regard.errors import CheckpointError, ConfigError, DataError
from regard.messages import counted
from regard.preprocess import shards
from regard.preprocess.shards import (
    EncodedChunk,
    ShardInfo,
    ShardWriter,
    TextHash,
    chunks_of,
    finished_shards,
    first_sample,
    map_in_background,
    spread_sample,
)
from regard.storage.folder import Folder
from regard.storage.manifest import check_folder, manifest_digest, staged
from regard.storage.resumable import ResumableFolder
from regard.text.bitext import STDIN, new_report, stream_bitext, text_files
from regard.text.corpus import Pair
from regard.text.text_report import LEFT_OUT, TextReport
from regard.text.tokenizer import refuse_unknown_kinds
from regard.text.tokenizer_pair import Tokenizers, fit_tokenizers, load_tokenizers
from regard.toml import flat_table

PAIRS_PER_SHARD = 2**20
TOKENS_PER_SHARD = 2**27  # per side; most vocabularies need two bytes per token


@dataclass(frozen=True)
class PrepareProgress:
    """How much of the text has been processed."""

    doing: str
    pairs: int  # done, including those of earlier attempts
    total: int | None  # None for a stream
    before: int = 0  # done by earlier attempts
    seconds: float = 0.0  # since this attempt began to encode


ProgressListener = Callable[[PrepareProgress], None]


def prepare(
    recipe: Recipe,
    out: Path,
    *,
    folders: list[Path],
    report: ProgressListener = lambda progress: None,
    first: PairStore | None = None,
    number: int = 0,
) -> PairStore:
    """Return the store of a recipe's training pairs in the folder `out`, after making or completing it if necessary.

    Of several corpora, it has the one with this number. The tokenizers are learnt from all corpora for the first one; the
    others are made with those of its store, `first`.
    """
    text = recipe.data.corpora[number]
    settings = _settings(recipe, number, folders)
    folder = ResumableFolder(out, settings=SETTINGS, early=("tokenizer",))
    folder.refuse_foreign()
    _refuse_other_settings(folder, settings)
    if folder.has_file(STORE):
        return PairStore(out)
    with folder.opened() as stored:
        done, read = finished_shards(folder), new_report(recipe.data)
        _remove_unfinished(folder, len(done))
        pairs: Iterator[Pair]
        if done:
            total = None if stored is None else stored.get("pairs")
            tokenizers = _load_tokenizers(folder)
            pairs = stream_bitext(text, folders=folders, data=recipe.data, report=read)
        else:
            tokenizers, pairs, total = _train_tokenizers(recipe, text, first, folders, folder, report, read)
            folder.save_json(SETTINGS, {**settings, "pairs": total})
        _skip_finished(done, pairs, folder, report, total)
        tags = recipe.data.tags_of(text)
        _encode(pairs, tokenizers, tokenizers.tag_ids(tags), recipe.data.cuts, folder, done, report, total)
        _list_left_out(folder, read)
        _finish(folder, tokenizers, recipe.data, settings["tokenizer"], tags, read)
    return PairStore(out)


def _settings(recipe: Recipe, number: int, folders: list[Path]) -> dict[str, Any]:
    """Return what determines a store, with names and sizes of the text files. Hashes of the text are in the shards."""
    corpora, keys = recipe.data.corpora, ("pairs", "source", "target", "generate")
    text, every = corpora[number], [name for one in corpora for name in one.names(*keys)]
    names = text.names(*keys)
    if not names:
        raise ConfigError("data.train names a store but no text to make it from; name source and target, or pairs")
    if STDIN in every and len(corpora) > 1:
        raise ConfigError("standard input is one corpus; to prepare several, name files in each entry of data.train")
    files = [] if STDIN in names or text.generate is not None else text_files(text, folders, recipe.data)
    refuse_unknown_kinds(recipe.tokenizer)
    if recipe.data.decontaminate:
        raise ConfigError("a store holds all pairs of its text; set data.decontaminate=false to prepare one")
    if recipe.tokenizer.sampled:
        raise ConfigError("ids on disk are the same in every epoch; set tokenizer.sampling=0 to prepare a store")
    # What earlier versions did not have is stored only where it is not the default.
    columns = None if text.columns is None else list(text.columns)
    later = {
        "columns": columns,
        "format": text.format,
        "languages": None if text.languages is None or text.pairs is None else list(text.languages),
        "on_error": "skip" if recipe.data.on_error == "skip" else None,
        "cut_source": recipe.data.cuts[0],
        "cut_target": recipe.data.cuts[1],
        # The tokenizers follow from all corpora and all tags.
        "corpora": [Path(name).name for name in every] if len(corpora) > 1 else None,
        "tags": list(recipe.data.tags) or None,
        "own_tags": list(recipe.data.tags_of(text)) or None,
    }
    return {
        "version": VERSION,
        "tokenizer": tokenizer_settings(recipe.tokenizer),
        "text": [Path(name).name for name in names],
        "bytes": [path.stat().st_size for path in files],
        "pairs_a_shard": PAIRS_PER_SHARD,
        **{name: value for name, value in later.items() if value is not None},
    }


def _refuse_other_settings(out: ResumableFolder, settings: dict[str, Any]) -> None:
    stored = out.stored_settings()
    if stored is None:
        return
    # The number of pairs is written with the settings, but is not one.
    if not isinstance(stored.pop("pairs", None), int | None):
        raise CheckpointError(f"{out.path / SETTINGS} is damaged: it is not what was written")
    out.refuse_changes(flat_table(stored), flat_table(settings))


def _remove_unfinished(out: Folder, intact: int) -> None:
    """Remove everything after the intact shards."""
    kept = {shard_name(number) for number in range(intact)}
    for name in out.names():
        if name.startswith("shard-") and name not in kept:
            out.remove(name)


def _train_tokenizers(
    recipe: Recipe,
    text: Bitext,
    first: PairStore | None,
    folders: list[Path],
    out: Folder,
    report: ProgressListener,
    read: TextReport,
) -> tuple[Tokenizers, Iterator[Pair], int | None]:
    """Train and save tokenizers, or copy those of another store. Return them, all pairs, and their number if it is known.

    What is left out is counted in `read` by whoever reads those pairs.
    """
    config = recipe.tokenizer
    pairs = stream_bitext(text, folders=folders, data=recipe.data, report=read)
    total: int | None = None
    if first is not None:
        tokenizers = _load_tokenizers(Folder(first.folder))
        with staged(out, "tokenizer") as folder:
            tokenizers.save(folder)
        return tokenizers, pairs, total
    if text.pairs == STDIN:
        sample, pairs = first_sample(pairs)
    else:
        every = chain.from_iterable(
            stream_bitext(one, folders=folders, data=recipe.data) for one in recipe.data.corpora
        )

        def count_pairs(count: int) -> None:
            if count % shards.CHUNK_PAIRS == 0:
                report(PrepareProgress("reading and checking", count, None))

        sample, count = spread_sample(every, count_pairs)
        total = count if len(recipe.data.corpora) == 1 else None
    kinds = " and ".join(dict.fromkeys([config.side("source").kind, config.side("target").kind]))
    report(PrepareProgress(f"learning {kinds} from {counted(len(sample), 'pair')}", 0, total))
    tokenizers = fit_tokenizers(sample, config, tags=recipe.data.tags)
    with staged(out, "tokenizer") as folder:
        tokenizers.save(folder)
    return tokenizers, pairs, total


def _load_tokenizers(out: Folder) -> Tokenizers:
    check_folder(out / "tokenizer")
    return load_tokenizers(out / "tokenizer")


def _skip_finished(
    done: list[ShardInfo], pairs: Iterator[Pair], out: Folder, report: ProgressListener, total: int | None
) -> None:
    """Skip the pairs of finished shards. Raise DataError if the shards were made from other text."""
    count = 0
    for number, shard in enumerate(done):
        text = TextHash()
        for chunk in chunks_of(islice(pairs, shard.pairs)):
            text.update(chunk)
            count += len(chunk)
            report(PrepareProgress("skipping finished shards", count, total))
        if text.hexdigests() != (shard.source_text, shard.target_text):
            raise DataError(
                f"the text has changed since {out / shard_name(number)} was made; restore it, or prepare it again "
                "in another folder (--out)"
            )


def _encode(
    pairs: Iterator[Pair],
    tokenizers: Tokenizers,
    tags: list[int],
    cuts: tuple[int | None, int | None],
    out: Folder,
    done: list[ShardInfo],
    report: ProgressListener,
    total: int | None,
) -> None:
    """Write the remaining shards. Each source begins with the ids of the tags. Sides are cut to so many tokens."""
    source_ids, target_ids = id_types(tokenizers)
    source_cut, target_cut = map(slice, cuts)

    def encode(chunk: list[Pair]) -> EncodedChunk:
        source = [[*tags, *ids][source_cut] for ids in tokenizers.source.encode_all([pair.source for pair in chunk])]
        target = [ids[target_cut] for ids in tokenizers.target.encode_all([pair.target for pair in chunk])]
        return EncodedChunk(chunk, Column.from_lists(source, source_ids), Column.from_lists(target, target_ids))

    number, before, started = len(done), sum(shard.pairs for shard in done), time.monotonic()
    count = before
    chunks = map_in_background(encode, chunks_of(pairs))
    for first in chunks:
        with ShardWriter(out, number) as shard:
            for chunk in chain([first], chunks):
                shard.add(chunk)
                count += len(chunk.pairs)
                report(PrepareProgress("encoding", count, total, before, time.monotonic() - started))
                if shard.pairs >= PAIRS_PER_SHARD or max(shard.tokens) >= TOKENS_PER_SHARD:
                    break
        number += 1
    if not count:
        raise DataError("the text is empty; there are no pairs to prepare")


def id_types(tokenizers: Tokenizers) -> tuple[str, str]:
    """Return the smallest integer type that holds the ids of each side."""
    source, target = ("uint16" if one.size <= 2**16 else "int32" for one in (tokenizers.source, tokenizers.target))
    return source, target


def _list_left_out(out: Folder, read: TextReport) -> None:
    """Write the list of text that was left out, if any was."""
    if LEFT_OUT in out.names():
        out.remove(LEFT_OUT)  # of an attempt that was killed before the store was complete
    if read.total:
        with out.create_file(LEFT_OUT) as file:
            file.writelines(read.blocks())


def _finish(
    out: Folder,
    tokenizers: Tokenizers,
    data: DataConfig,
    tokenizer: dict[str, Any],
    tags: tuple[str, ...],
    read: TextReport,
) -> None:
    """Write store.json, which marks the store as complete."""
    finished = finished_shards(out)
    lengths = sum((LengthTable.from_rows(shard.lengths) for shard in finished), LengthTable.from_rows([]))
    totals = lengths.upto()
    source_tokens, target_tokens = totals.tokens
    source_ids, target_ids = id_types(tokenizers)
    entries = [
        Shard(shard.pairs, shard.source_tokens, shard.target_tokens, manifest_digest(out / shard_name(number)))
        for number, shard in enumerate(finished)
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
        tags=tags,
        source_cut=data.cuts[0] or 0,
        target_cut=data.cuts[1] or 0,
        left_out=dict(read.left_out.most_common()),
        mended=dict(read.mended.most_common()),
    )
    info = msgspec.structs.replace(info, sha256=info.digest())
    out.save_json(STORE, msgspec.to_builtins(info))


def store_problems(store: PairStore) -> Iterator[str]:
    """Yield one sentence for each damaged part of a store, after reading all of its files."""
    parts = [("tokenizer", store.info.tokenizer_sha256)]
    parts += [(shard_name(number), shard.sha256) for number, shard in enumerate(store.info.shards)]
    for name, digest in parts:
        folder = Folder(store.folder, name)
        try:
            check_folder(folder)
            if manifest_digest(folder) != digest:
                raise CheckpointError(f"{folder} is intact, but it is not the one that this store was made with")
        except CheckpointError as error:
            yield str(error)

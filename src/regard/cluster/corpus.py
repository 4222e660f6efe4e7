"""`translate_corpus`: translate files shard by shard on many workers, and resume after an interruption."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from regard.cluster.formats import ParquetFormat, pick_format
from regard.cluster.output import OutputFolder, OutputSettings, find_files, read_shards, scan_files, split_into_shards
from regard.cluster.pool import ShardAttempt, WorkerPool, connected
from regard.cluster.worker import ShardResult, pack_model
from regard.config import SearchOptions
from regard.decoding.translator import READ_AHEAD
from regard.errors import ConfigError, require
from regard.loading import require_translation
from regard.run.finding import find_run
from regard.text.languages import Languages

# A multiple of the lines that are sorted together, so that batches equal those of `regard translate` without Ray.
SHARD_LINES = 2 * READ_AHEAD


@dataclass(frozen=True)
class WorkerReady:
    """A worker has loaded the model."""

    machine: str
    process: int


@dataclass(frozen=True)
class ShardDone:
    """A shard has been written."""

    translated: int  # lines so far, by this command
    left: int  # lines
    seconds: float  # since the first worker was ready


CorpusEvent = WorkerReady | ShardDone


@dataclass(frozen=True)
class ClusterResult:
    """What a command has done."""

    shards: int
    translated: int  # shards, by this command; the others existed already
    lines: int  # of all shards
    pattern: str  # matches the names of all parts


def _search_settings(options: SearchOptions, recipe: SearchOptions) -> dict[str, Any]:
    """Return the options that the output depends on, without those that the hash of the model covers."""
    settings = msgspec.structs.asdict(options)
    left_out = {"tokens", "max_source"} if options.max_source == recipe.max_source else {"tokens"}
    return {name: value for name, value in settings.items() if name not in left_out}


def translate_corpus(
    run: Path | str,
    source: str,
    output: Path | str,
    *,
    options: SearchOptions | None = None,
    to: str | None = None,
    column: str = "text",
    shard_lines: int = SHARD_LINES,
    workers: int = 0,
    device: str = "auto",
    threads: int = 1,
    on_event: Callable[[CorpusEvent], None] = lambda event: None,
    warn: Callable[[str], None] = lambda text: None,
) -> ClusterResult:
    """Translate files into a folder with workers on a Ray cluster; existing shards are kept.

    `workers` 0 starts one worker per GPU of the cluster, or per CPU if it has no GPU. `to` is the language to translate
    into, of a model that has several.
    """
    if shard_lines < 1 or workers < 0:
        raise ConfigError(
            f"shard_lines is {shard_lines} and workers is {workers}; use at least 1 line and at least 0 workers"
        )
    require("ray", extra="ray")
    require_translation(run, "translate")
    recipe = find_run(run).recipe()
    options = recipe.decode.with_given(options)
    Languages(recipe.data.language_pairs).tags_into(to)
    if options.nbest > 1:
        raise ConfigError(f"nbest is {options.nbest}, but shards hold one translation per line; leave --nbest out")
    paths = find_files(source)
    layout = pick_format(paths, column)
    folder = OutputFolder(Path(output), layout.suffix)
    with folder.opened() as stored:
        files = scan_files(paths, layout, stored.files if stored else ())
        shards = split_into_shards(files, shard_lines)
        model = replace(pack_model(run), to=to)
        named = column if isinstance(layout, ParquetFormat) else None
        search = {**_search_settings(options, recipe.decode), **({} if to is None else {"to": to})}
        settings = OutputSettings(files, named, shard_lines, str(run), model.sha256, search)
        folder.begin(settings, stored, len(shards))
        todo = {shard.number: shard.size for shard in shards if not folder.is_done(shard)}
        began, translated = time.monotonic(), 0

        def finish(attempt: ShardAttempt, result: ShardResult) -> None:
            nonlocal translated
            shard = attempt.shard
            folder.write(shard, attempt.rows.content(result.translations))
            for text in result.warnings:
                warn(f"{shard.file.name}: {text}")
            translated += shard.size
            on_event(ShardDone(translated, sum(todo.values()) - translated, time.monotonic() - began))

        def on_worker(machine: str, process: int) -> None:
            nonlocal began
            began = began if translated else time.monotonic()
            on_event(WorkerReady(machine, process))

        if todo:
            with connected() as ray:
                pool = WorkerPool(ray, model, options, device=device, threads=threads, on_worker=on_worker, warn=warn)
                size = min(workers or pool.capacity(), len(todo))
                pool.run(read_shards(shards, layout, shard_lines, todo), size, finish)
    pattern = str(folder.path / f"part-*{layout.suffix}")
    return ClusterResult(len(shards), len(todo), sum(shard.size for shard in shards), pattern)

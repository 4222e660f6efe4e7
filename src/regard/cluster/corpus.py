"""The verb: a corpus translated shard by shard, by many workers, once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from regard.cluster.formats import ParquetFormat, pick_format
from regard.cluster.output import OutputFolder, Plan
from regard.cluster.pool import Job, Pool, connected
from regard.cluster.source import cut, find_files, read_shards, survey
from regard.cluster.worker import Answer, pack_model
from regard.decoding.hypotheses import SearchOptions
from regard.decoding.translator import READ_AHEAD
from regard.errors import ConfigError, require
from regard.run.pretrained import find_run

SHARD_LINES = 2 * READ_AHEAD  # whole batches of lines sorted together, so batches are those of the plain command


@dataclass(frozen=True)
class WorkerReady:
    """A worker has the model, on that machine in that process."""

    machine: str
    process: int


@dataclass(frozen=True)
class ShardDone:
    """A shard has been written; so far, of this command's own work and in all."""

    translated: int  # lines, by this command
    left: int  # lines
    seconds: float  # since the first worker was ready


Event = WorkerReady | ShardDone


@dataclass(frozen=True)
class ClusterResult:
    """What a command did."""

    shards: int
    translated: int  # shards, by this command; the others were there
    lines: int  # of all shards
    pattern: str  # the names of all parts


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
    column: str = "text",
    shard_lines: int = SHARD_LINES,
    workers: int = 0,
    device: str = "auto",
    threads: int = 1,
    listen: Callable[[Event], None] = lambda event: None,
    warn: Callable[[str], None] = lambda text: None,
) -> ClusterResult:
    """Translates files into a folder, by workers on a Ray cluster; shards that are there already are left as they are.

    `workers` 0 takes as many as the cluster has GPUs, or CPUs where it has none.
    """
    if shard_lines < 1 or workers < 0:
        raise ConfigError(
            f"a shard of {shard_lines} lines, {workers} workers: use 1 line or more, and 0 workers or more"
        )
    require("ray", extra="ray")
    recipe = find_run(run).recipe()
    options = options or recipe.decode
    if options.nbest > 1:
        raise ConfigError(
            f"{options.nbest} best were asked for, but shards hold one translation a line; leave --nbest out"
        )
    paths = find_files(source)
    layout = pick_format(paths, column)
    folder = OutputFolder(Path(output), layout.suffix)
    with folder.held():
        before = folder.plan()
        files = survey(paths, layout, before.files if before else ())
        shards = cut(files, shard_lines)
        model = pack_model(run)
        named = column if isinstance(layout, ParquetFormat) else None
        folder.begin(
            Plan(files, named, shard_lines, str(run), model.sha256, _search_settings(options, recipe.decode)),
            before,
            len(shards),
        )
        todo = {shard.number: shard.size for shard in shards if not folder.is_done(shard)}
        began, translated = time.monotonic(), 0

        def finish(job: Job, answer: Answer) -> None:
            nonlocal translated
            folder.write(job.shard, job.chunk.content(answer.translations))
            for text in answer.warnings:
                warn(f"{job.shard.file.name}: {text}")
            translated += job.shard.size
            listen(ShardDone(translated, sum(todo.values()) - translated, time.monotonic() - began))

        def on_worker(machine: str, process: int) -> None:
            nonlocal began
            began = began if translated else time.monotonic()
            listen(WorkerReady(machine, process))

        if todo:
            with connected() as ray:
                pool = Pool(ray, model, options, device=device, threads=threads, on_worker=on_worker, warn=warn)
                size = min(workers or pool.room(), len(todo))
                pool.run(read_shards(shards, layout, shard_lines, todo), size, finish)
    pattern = str(folder.path / f"part-*{layout.suffix}")
    return ClusterResult(len(shards), len(todo), sum(shard.size for shard in shards), pattern)

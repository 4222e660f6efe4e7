"""Measure `regard data prepare` on a large corpus, training from its store, and resuming late in it.

python benchmarks/prepare.py --pairs 1000000,10000000 --out benchmarks/results/prepare.json

Sentences are generated: words made of syllables, distributed by Zipf's law, with one target word per source word. Each job
runs in its own process, so peak memory is per job. The plain loop reads the first pairs, encodes them with the same
SentencePiece model and number of threads, and drops the ids; it checks, hashes and writes nothing. Resuming late means a
checkpoint whose position is set to the second-to-last block. Before that, the system is asked to drop the store from its
page cache, so that it is read from disk. `others` is the share of the machine that unrelated processes used; rates are
meaningful only if it is small.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from machine import machine, machine_seconds, peak_bytes, version

WORDS = 30_000
CHUNK = 100_000  # pairs generated at once
PLAIN_PAIRS = 1_000_000  # of the plain loop
ENCODED_AT_ONCE = 2**14
RECIPE = """
[data]
train = {{ pairs = "{text}" }}
[tokenizer]
kind = "bpe"
size = 8000
[model]
kind = "transformer"
width = 32
num_layers = 1
num_heads = 2
hidden = 64
[train]
steps = {steps}
tokens = 2048
threads = 1
log_every = 1
checkpoint_every = 1000000
device = "cpu"
"""


def vocabulary(random: np.random.Generator) -> np.ndarray:
    """Return distinct invented words, shorter ones first."""
    consonants, vowels = list("bdfghjklmnprstvz"), list("aeiou")
    words: dict[str, None] = {}
    while len(words) < WORDS:
        syllables = 2 + len(words) // 10_000 + random.integers(2)
        letters = zip(random.choice(consonants, syllables), random.choice(vowels, syllables), strict=True)
        words["".join(map("".join, letters))] = None
    return np.array(list(words), dtype=object)


def generate(path: Path, pairs: int, longest: int) -> None:
    """Write a .tsv file, chunk by chunk."""
    random = np.random.default_rng(1)
    words, others = vocabulary(random), random.permutation(WORDS)
    shares = 1 / np.arange(1, WORDS + 1)
    bounds = np.cumsum(shares / shares.sum())
    with path.open("w", encoding="utf-8") as file:
        for begin in range(0, pairs, CHUNK):
            lengths = random.integers(3, longest + 1, min(CHUNK, pairs - begin))
            drawn = np.minimum(np.searchsorted(bounds, random.random(int(lengths.sum()))), WORDS - 1)
            ends = lengths.cumsum().tolist()
            sources, targets = words[drawn].tolist(), words[others[drawn]].tolist()
            starts = [0, *ends[:-1]]
            file.writelines(
                f"{' '.join(sources[a:b])}\t{' '.join(targets[a:b])}\n" for a, b in zip(starts, ends, strict=True)
            )


# The jobs, each in its own process. The last line that a job prints is JSON.


def job_generate(folder: Path, pairs: int, longest: int) -> dict[str, Any]:
    generate(folder / "text.tsv", pairs, longest)
    (folder / "my.toml").write_text(RECIPE.format(text=folder / "text.tsv", steps=100))
    return {"bytes": (folder / "text.tsv").stat().st_size}


def job_prepare(folder: Path, pairs: int) -> dict[str, Any]:
    from regard.preprocess.prepare import PrepareProgress, prepare  # what the command calls, without its display
    from regard.recipe_files import load_recipe

    began, last = time.perf_counter(), PrepareProgress("", 0, None)
    marks: dict[str, float] = {}

    def report(progress: PrepareProgress) -> None:
        nonlocal last
        marks.setdefault(progress.doing.split()[0], time.perf_counter() - began)
        last = progress

    store = prepare(load_recipe(str(folder / "my.toml")), folder / "ids", folders=[folder], report=report)
    seconds = time.perf_counter() - began
    assert len(store) == pairs and "torch" not in sys.modules, (len(store), pairs)
    encoding = seconds - marks["encoding"]
    return {
        "seconds": seconds,
        "seconds_reading_and_checking": marks["learning"],
        "seconds_learning_the_tokenizer": marks["encoding"] - marks["learning"],
        "seconds_encoding_and_writing": encoding,
        "pairs_per_second": pairs / seconds,
        "pairs_per_second_encoding": pairs / encoding,
        "tokens": store.info.source_tokens + store.info.target_tokens,
        "shards": len(store.info.shards),
        "store_bytes": sum(path.stat().st_size for path in (folder / "ids").rglob("*") if path.is_file()),
    }


def job_plain(folder: Path) -> dict[str, Any]:
    import sentencepiece

    threads = len(os.sched_getaffinity(0))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "ids" / "tokenizer" / "joint.model"))
    began, count = time.perf_counter(), 0
    with (folder / "text.tsv").open(encoding="utf-8") as file:
        lines = islice(file, PLAIN_PAIRS)
        while chunk := [line.rstrip("\n").split("\t") for line in islice(lines, ENCODED_AT_ONCE)]:
            for side in zip(*chunk, strict=True):
                processor.encode(list(side), num_threads=threads)
            count += len(chunk)
    seconds = time.perf_counter() - began
    return {"pairs": count, "threads": threads, "pairs_per_second": count / seconds}


class Reads:
    """Record which rows of a store are read, by wrapping the two methods that read them."""

    def __init__(self) -> None:
        from regard.data.pair_store import StoredPairs

        self.lengths: list[np.ndarray] = []
        self.ids: list[np.ndarray] = []
        lengths_of, read = StoredPairs.lengths_of, StoredPairs.read

        def counted_lengths(sides: Any, rows: np.ndarray) -> Any:
            self.lengths.append(rows)
            return lengths_of(sides, rows)

        def counted_read(sides: Any, batches: list[np.ndarray]) -> Any:
            self.ids += batches
            return read(sides, batches)

        StoredPairs.lengths_of, StoredPairs.read = counted_lengths, counted_read  # type: ignore[method-assign]


def _train(folder: Path, steps: int) -> tuple[float, float, float]:
    """Train, and return the times of the call, of the start of the loop and of the end of the first step."""
    from regard import api
    from regard.training.events import Progress, Started

    times: dict[str, float] = {}

    def listen(event: Any) -> None:
        if isinstance(event, Started | Progress):
            times.setdefault(type(event).__name__, time.time())

    called = time.time()
    overrides = [f"data.train.store={folder / 'ids'}", f"train.steps={steps}"]
    api.train(str(folder / "my.toml"), out=folder / "run", overrides=overrides, listen=listen, accept=["train.steps"])
    return called, times["Started"], times["Progress"]


def job_train(folder: Path, launched: float) -> dict[str, Any]:
    steps = 100
    _, started, stepped = _train(folder, steps)
    seconds = time.time() - started
    return {"steps": steps, "seconds": seconds, "seconds_from_launch_to_first_step": stepped - launched}


def job_late(folder: Path, cold: bool) -> dict[str, Any]:
    """Turn the finished run into an unfinished one whose position is late in its data."""
    from regard.data import batch_sampler
    from regard.run.folder import RunFolder

    run = RunFolder(folder / "run")
    shutil.rmtree(run.path / "final")
    step = run.steps()[-1]
    checkpoint = run.read_checkpoint(run.checkpoints()[-1].name, training=True)
    count = json.loads((folder / "ids" / "store.json").read_text())["pairs"]
    num_blocks = max(1, round(count / batch_sampler.EXAMPLES_PER_BLOCK))
    checkpoint.counters.update(epoch=0, block=num_blocks - 2, batch=40)
    run.save(checkpoint, step=step)
    if cold:
        forget_pages(folder / "ids")
    return {"step": step, "block": num_blocks - 2, "blocks": num_blocks}


def forget_pages(folder: Path) -> None:
    """Ask the system to drop these files from its page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def job_resume(folder: Path, launched: float, step: int, block: int, num_blocks: int) -> dict[str, Any]:
    from regard.data.shuffle import Shuffle

    reads = Reads()
    called, started, stepped = _train(folder, step + 5)
    peak = round(peak_bytes() / 2**20)  # before the counting below, which takes hundreds of MiB
    count = json.loads((folder / "ids" / "store.json").read_text())["pairs"]
    earlier = np.zeros(count, dtype=bool)
    earlier[Shuffle(count, (1, 0))[0 : count * block // num_blocks]] = True
    lengths, ids = np.concatenate(reads.lengths), np.concatenate(reads.ids)
    return {
        "block": block,
        "blocks": num_blocks,
        "peak_mib": peak,
        "seconds_from_launch_to_first_step": stepped - launched,
        "seconds_from_call_to_first_step": stepped - called,
        "seconds_from_loop_to_first_step": stepped - started,
        "rows_of_the_store": count,
        "rows_whose_lengths_were_read": len(lengths),
        "rows_whose_ids_were_read": len(ids),
        "rows_of_earlier_blocks_read": int(earlier[lengths].sum() + earlier[ids].sum()),
    }


def children_seconds() -> float:
    """Return the CPU seconds of the jobs that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_job(name: str, *arguments: Any) -> dict[str, Any]:
    print(f"{name} ...", file=sys.stderr, flush=True)
    command = [sys.executable, __file__, "--job", name, json.dumps(arguments, default=str)]
    began, before, ours = time.monotonic(), machine_seconds(), children_seconds()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    used = machine_seconds() - before - (children_seconds() - ours)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    result["others"] = round(max(used, 0) / (time.monotonic() - began) / (os.cpu_count() or 1), 3)
    print(json.dumps(result), file=sys.stderr, flush=True)
    return result


def measure(pairs: int, longest: int, scratch: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        folder = Path(place)
        result: dict[str, Any] = {"pairs": pairs, "text": run_job("generate", folder, pairs, longest)}
        result["prepare"] = run_job("prepare", folder, pairs)
        result["plain"] = run_job("plain", folder)
        plain = result["plain"]["pairs_per_second"]
        result["encoding_to_plain"] = result["prepare"]["pairs_per_second_encoding"] / plain
        result["whole_to_plain"] = result["prepare"]["pairs_per_second"] / plain
        result["train"] = run_job("train", folder, time.time())
        for name, cold in (("resume_from_disk", True), ("resume_from_page_cache", False)):
            late = run_job("late", folder, cold)
            result[name] = run_job("resume", folder, time.time(), late["step"], late["block"], late["blocks"])
        return result


JOBS = {
    "generate": job_generate, "prepare": job_prepare, "plain": job_plain,
    "train": job_train, "late": job_late, "resume": job_resume,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", default="1000000,10000000")
    parser.add_argument("--longest", type=int, default=14, help="most words per sentence; at least 3")
    parser.add_argument("--scratch", type=Path, help="folder for temporary text and stores")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        name, given = arguments.job[0], json.loads(arguments.job[1])
        result = JOBS[name](Path(given[0]), *given[1:])
        print(json.dumps({"peak_mib": round(peak_bytes() / 2**20), **result}))
        return
    sizes = [int(size) for size in arguments.pairs.split(",")]
    results = [measure(size, arguments.longest, arguments.scratch) for size in sizes]
    here = machine()
    here["versions"]["sentencepiece"] = version("sentencepiece")
    text = json.dumps({"benchmark": "prepare", "machine": here, "results": results}, indent=1)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    print(json.dumps(json.loads(text)))


if __name__ == "__main__":
    main()

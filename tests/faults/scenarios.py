"""The commands whose crashes are tested, each with settings so small that it takes a fraction of a second."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard import api, distilling, loading
from regard.data.pair_store import PairStore
from regard.preprocess import prepare, shards
from regard.recipe_files import load_recipe
from regard.run.folder import RunFolder
from regard.training.events import Saved
from tests.preprocess.conftest import lines

Mark = Callable[[str], None]

RECIPE = """
name = "tiny"
[data]
train = {{ pairs = "{home}/train.tsv" }}
valid = {{ pairs = "{home}/valid.tsv" }}
[tokenizer]
kind = "word"
size = 80
[model]
kind = "transformer"
width = 8
num_layers = 1
num_heads = 2
hidden = 8
dropout = 0.1
[train]
steps = 6
tokens = 64
threads = 1
device = "cpu"
checkpoint_every = 2
validate_pairs = 1
log_every = 1
keep = 2
ema = 0.9
average = 2
[decode]
beam = 1
max_extra = 1
"""
PAIRS = 24
LEFTOVERS = "leftovers"
CLOCK = {"seconds", "tokens_per_second"}


@dataclass(frozen=True)
class Scenario:
    """One command. `home` holds its inputs and is never damaged; `out` is the folder that it writes."""

    run: Callable[[Path, Path, Mark], None]  # calls `mark` with what must survive a crash from then on
    look: Callable[[Path, Path], None]  # reads the folder; may raise only RegardError
    result: Callable[[Path], dict[str, Any]]  # must be equal after any number of crashes
    kills: tuple[tuple[str, int], ...] = ()  # sessions that kill themselves some operations after a mark
    lost: Callable[[Path, list[str]], str] = lambda out, marks: (
        ""
    )  # describes what was lost although it was reported as saved
    finished: Callable[[Path], bool] = lambda out: False  # whether nothing is left to do, not even to clean up
    teacher: bool = False  # whether a finished run is among the inputs
    refusals: tuple[str, ...] = ()  # patterns of messages that may refuse an incomplete folder


def make_home(home: Path, *, teacher: bool) -> None:
    """Write the inputs."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "train.tsv").write_text("".join(lines(PAIRS)), encoding="utf-8")
    (home / "valid.tsv").write_text("".join(lines(2, seed=2)), encoding="utf-8")
    (home / "tiny.toml").write_text(RECIPE.format(home=home), encoding="utf-8")
    if teacher:
        api.train(str(home / "tiny.toml"), out=home / "teacher")
        api.card(home / "teacher", evaluated=False)


def files(folder: Path) -> dict[str, str]:
    """Return the hashes of all files except the lock."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


# Training


def train(home: Path, out: Path, mark: Mark) -> None:
    def listen(event: object) -> None:
        if isinstance(event, Saved):
            mark(f"saved {event.step}")

    # A resumed run changes a setting, so that the recipe is written again.
    changed = ["train.max_bad_steps=7"] if RunFolder(out).exists else []
    accept = ["train.max_bad_steps"] if changed else []
    api.train(str(home / "tiny.toml"), out=out, overrides=changed, listen=listen, accept=accept)


def look_at_run(home: Path, out: Path) -> None:
    RunFolder(out).problems()
    loading.load(out, device="cpu")


def run_result(out: Path) -> dict[str, Any]:
    run, found = RunFolder(out), files(out)
    hidden = sorted(name for name in found if "/." in f"/{name}")
    # A checkpoint that was to be removed may still be there, and so may the watchdog's empty file.
    visible = sorted(name for name in found.keys() - hidden if not name.startswith(("checkpoints/", "stalled.txt")))
    logged = run.read_log()
    progress = [{key: event[key] for key in event.keys() - CLOCK} for event in logged if event["event"] == "progress"]
    validated = [[event["step"], event["loss"], event["best"]] for event in logged if event["event"] == "validated"]
    return {
        "final weights": found.get("final/weights.safetensors"),
        "progress in the log": progress,
        "validations in the log": validated,
        "files": visible,
        LEFTOVERS: hidden,
        "problems": run.problems() if run.exists else ["the run does not exist"],
    }


def lost_checkpoint(out: Path, marks: list[str]) -> str:
    saved = max((int(mark.removeprefix("saved ")) for mark in marks if mark.startswith("saved ")), default=0)
    if not saved:
        return ""
    checkpoint, name = RunFolder(out).weights()
    return "" if checkpoint.counters["step"] >= saved else f"step {saved} was reported as saved, {name} is the newest"


# Preparing


def prepare_store(home: Path, out: Path, mark: Mark) -> None:
    prepare.PAIRS_PER_SHARD, shards.CHUNK_PAIRS = 8, 4

    def report(progress: prepare.PrepareProgress) -> None:
        mark(f"{progress.doing} {progress.pairs}")

    prepare.prepare(load_recipe(str(home / "tiny.toml"), ()), out, folders=[home], report=report)


def look_at_store(home: Path, out: Path) -> None:
    list(prepare.store_problems(PairStore(out)))


def store_result(out: Path) -> dict[str, Any]:
    return {
        **files(out),
        "problems": list(prepare.store_problems(PairStore(out))) if (out / "store.json").exists() else None,
    }


# Exporting and distilling


def export(home: Path, out: Path, mark: Mark) -> None:
    api.export(home / "teacher", out)


def distill(home: Path, out: Path, mark: Mark) -> None:
    distilling.READ_AHEAD = 6

    def progress(done: int, total: int) -> None:
        mark(f"translated {done}")

    distilling.distill(home / "teacher", out, data=home, device="cpu", progress=progress)


def look_at_corpus(home: Path, out: Path) -> None:
    if (out / "card.json").exists() and json.loads((out / "card.json").read_bytes())["done"]:
        source, target = ((out / name).read_text(encoding="utf-8") for name in ("source.txt", "target.txt"))
        assert source.count("\n") == target.count("\n") == PAIRS, "a corpus that is marked as done is incomplete"


SCENARIOS = {
    "train": Scenario(
        train,
        look_at_run,
        run_result,
        kills=(("saved 2", 18), ("saved 4", 25)),
        lost=lost_checkpoint,
        finished=lambda out: RunFolder(out).finished,
    ),
    "prepare": Scenario(prepare_store, look_at_store, store_result, kills=(("encoding 12", 12),)),
    "export": Scenario(export, look_at_run, files, teacher=True),
    "distill": Scenario(distill, look_at_corpus, files, kills=(("translated 12", 1),), teacher=True),
}

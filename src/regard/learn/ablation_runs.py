"""Both runs of an ablation, trained at the same time in two processes of one core each, and what came of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from regard.config import Recipe
from regard.errors import RegardError, TrainingError
from regard.explain.report import as_report
from regard.learn.ablated_training import DIVERGED, STOPPED
from regard.learn.ablations import find_ablation, make_sides
from regard.recipe_files import recipe_folder
from regard.run.folder import RunFolder
from regard.storage.folder import Folder
from regard.toml import dump_toml, to_table

POLL_SECONDS = 0.5
END_SECONDS = 60.0  # for a process to save its last step
JSON, PAGE = "ablation.json", "ablation.html"


class ExampleOutput(msgspec.Struct, frozen=True):
    """A line of the dev set."""

    source: str
    output: str
    reference: str


class Side(msgspec.Struct, frozen=True):
    """How one of the runs went."""

    name: str
    parameters: int
    seconds: float  # of training
    scores: dict[str, float | None]  # on the dev set, at the end; None: not finite
    losses: list[tuple[int, float | None]]  # of training, by step
    dev: list[tuple[int, dict[str, float | None]]]
    examples: list[ExampleOutput]
    diverged: str = ""  # why training could not continue


class SeedResult(msgspec.Struct, frozen=True):
    """Both runs of one seed."""

    seed: int
    seconds: float  # from the start of the processes until both were finished; 0 if unknown
    cpu_seconds: float  # of both processes together; 0 if unknown, and on Windows
    with_it: Side
    without_it: Side


class AblationResult(msgspec.Struct, frozen=True):
    """What taking one part away did."""

    what: str
    recipe: str
    steps: int
    metric: str
    settings: str  # of both runs, as overrides of the recipe
    off: str  # what the run without the part changes
    seeds: list[SeedResult]


class Stopped(RegardError):
    """A signal or another process stopped a run; the same command resumes."""


def run_ablation(
    what: str,
    recipe: str | None = None,
    *,
    out: Path | str,
    seeds: list[int],
    steps: int | None = None,
    data: Path | None = None,
    show: Callable[[str], None] = lambda text: None,
) -> AblationResult:
    """Train with and without a part, for each seed, and write the curves and the numbers into a folder.

    Runs that are finished in the folder are not trained again; unfinished ones resume. `show` receives progress.
    """
    ablation, folder = find_ablation(what), Folder(out).make()
    if data is None and recipe is not None:
        data = recipe_folder(recipe)
    found, runs, measured = [], [], _measured(folder)
    for seed in seeds:
        sides = make_sides(what, recipe, seed=seed, steps=steps)
        names = [f"with-{what}-seed-{seed}", f"without-{what}-seed-{seed}"]
        begun, cpu, both = time.monotonic(), _cpu_seconds(), [RunFolder(folder.path / name) for name in names]
        finished = all(run.finished for run in both)
        ends = _train_both([sides.with_it, sides.without_it], both, data, partial(_show_seed, show, seed))
        seconds, cpu = round(time.monotonic() - begun, 1), round(_cpu_seconds() - cpu, 1)
        if finished:  # nothing was trained, so the time is that of the call that did
            seconds, cpu = measured.get(seed, (0.0, 0.0))
        labels = (ablation.with_it, ablation.without_it)
        done = [_summarize(*three) for three in zip(both, labels, ends, strict=True)]
        found.append(SeedResult(seed, seconds, cpu, *done))
        runs += both
        folder.save_text(PAGE, as_report(runs))
        result = _save(folder, what, recipe, found, sides.with_it)
    return result


def _measured(folder: Folder) -> dict[int, tuple[float, float]]:
    """Return the seconds and the CPU seconds by seed that an earlier call has measured."""
    if not folder.has_file(JSON):
        return {}
    result = folder.load_struct(JSON, AblationResult)
    return {one.seed: (one.seconds, one.cpu_seconds) for one in result.seeds}


def _cpu_seconds() -> float:
    """Return the CPU seconds of the processes that this one has started and that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _show_seed(show: Callable[[str], None], seed: int, text: str) -> None:
    show(f"seed {seed}  {text}")


def _save(folder: Folder, what: str, recipe: str | None, found: list[SeedResult], usual: Recipe) -> AblationResult:
    ablation = find_ablation(what)
    result = AblationResult(
        what=what,
        recipe=recipe or ablation.recipe,
        steps=usual.train.steps,
        metric=usual.train.metric,
        settings="" if recipe else ablation.settings,
        off=ablation.off,
        seeds=found,
    )
    folder.save_bytes(JSON, msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    return result


def _train_both(
    recipes: list[Recipe], runs: list[RunFolder], data: Path | None, show: Callable[[str], None]
) -> list[str]:
    """Train two recipes at the same time, and return for each why it could not continue, or an empty text."""
    with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as other:
        errors = [one, other]
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for three in zip(recipes, runs, errors, strict=True):
                processes.append(_start(*three, data))
            while any(process.poll() is None for process in processes):
                show("   ".join(_progress(run) for run in runs))
                time.sleep(POLL_SECONDS)
        finally:
            _end(processes)
        ends = []
        for process, run, error in zip(processes, runs, errors, strict=True):
            error.seek(0)
            text = error.read().decode(errors="replace").strip()
            if process.returncode == DIVERGED:
                ends.append(text)
                continue
            if process.returncode == STOPPED:
                raise Stopped(f"{run} was stopped and is saved; the same command resumes it")
            if process.returncode:
                raise TrainingError(f"{run} could not be trained: {text.splitlines()[-1] if text else 'it was killed'}")
            ends.append("")
        return ends


def _start(recipe: Recipe, run: RunFolder, errors: Any, data: Path | None) -> subprocess.Popen[bytes]:
    """Start the process that trains a recipe."""
    command = [sys.executable, "-m", "regard.learn.ablated_training", str(run.path), "" if data is None else str(data)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MIMALLOC_PURGE_DELAY": "1000"},
    )
    assert process.stdin is not None
    # A process that ends at once says why on its standard error.
    with suppress(BrokenPipeError), process.stdin as given:
        given.write(dump_toml(to_table(recipe)).encode())
    return process


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Ask processes that still run to save and stop, and end those that do not."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _progress(run: RunFolder) -> str:
    """Return how far a run is."""
    events = [event for event in run.read_log() if event["event"] == "progress"] if run.exists else []
    if not events:
        return f"{run.path.name}: starting"
    last = events[-1]
    loss = "not finite" if last["loss"] is None else f"{last['loss']:.3f}"
    return f"{run.path.name}: step {last['step']}/{last['steps']} loss {loss}"


def _summarize(run: RunFolder, name: str, diverged: str) -> Side:
    """Return what the log of a run says."""
    log = run.require().read_log()
    progress = [event for event in log if event["event"] == "progress"]
    validated = [event for event in log if event["event"] == "validated"]
    started = [event for event in log if event["event"] == "started"]
    dev = [(event["step"], {key: event[key] for key in event if _is_score(key, event[key])}) for event in validated]
    examples = [
        ExampleOutput(**{key: one[key] for key in ("source", "output", "reference")}) for one in _last(validated)
    ]
    return Side(
        name=name,
        parameters=started[-1]["parameters"] if started else 0,
        seconds=round(progress[-1]["seconds"], 1) if progress else 0.0,
        scores=dev[-1][1] if dev else {},
        losses=[(event["step"], event["loss"]) for event in progress],
        dev=dev,
        examples=examples,
        diverged=diverged,
    )


def _last(validated: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return validated[-1]["examples"] if validated else []


def _is_score(key: str, value: Any) -> bool:
    number = value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    return number and key not in ("step", "crc")

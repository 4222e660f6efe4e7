"""Train a recipe on each of the 20 bAbI tasks, many runs at once on one GPU, and compare the errors with published ones.

python benchmarks/babi.py --data ~/data --out benchmarks/results/babi-entnet-h200.json --jobs 16 --minutes 8.5

Every task is trained once, task 3 with four seeds; while there is time, tasks are trained again with other seeds, those
with the largest error on their dev questions first. As published, the run with the smallest dev error (then dev loss)
counts, and it alone is tested.
Task 3 has no training file in en-10k: it is trained on questions of our generator (`rooms`, facts = 3; 10,000 new ones in
each epoch, half as many per batch) and tested on the questions of bAbI. `--babi en` trains all tasks on 1,000 questions
instead, task 3 too.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine import machine

# Percent of wrong answers with 10,000 training questions per task (Henaff et al. 2017; as the README of
# jimfleming/recurrent-entity-networks quotes them).
PUBLISHED = (0, 0.1, 4.1, 0, 0.3, 0.2, 0, 0.5, 0.1, 0.6, 0.3, 0, 1.3, 0, 0, 0.2, 0.5, 0.3, 2.3, 0)
FAILED = 5.0  # percent; a task with a larger error counts as failed (Weston et al. 2015)
SOLVED = 0.1  # percent of dev questions; a task with a smaller error is not trained again
# Mean number of words of an example, question included, with the last 70 sentences (task 3: 130).
WORDS = (34, 84, 248, 20, 110, 37, 51, 49, 38, 42, 39, 46, 45, 58, 41, 36, 27, 53, 45, 30)
# The longest runs, which start first.
LONG = (3, 5, 2, 14, 18, 8, 7)
# Runs with other seeds that start at once, where results differ most between seeds.
SEEDS_AT_ONCE = {3: 4}
# Of the recipe's steps, where a task needs more of them.
MORE_STEPS = {2: 1.5, 3: 2.25, 16: 1.5, 17: 1.5, 19: 1.5}
# Task 3 has new stories in each epoch, and needs less decay of the weights; task 16 is not learnt with any.
MORE_SETTINGS = {3: ("train.weight_decay=0.05",), 16: ("train.weight_decay=0",)}


@dataclass
class Run:
    """One training run of one task, while it runs and after."""

    task: int
    seed: int
    out: Path
    process: subprocess.Popen[bytes] | None = None
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    code: int | None = None

    def dev(self) -> tuple[float, float] | None:
        """Return the error on dev questions in percent, and their loss, of the best validation so far."""
        try:
            lines = (self.out / "log.jsonl").read_text(encoding="utf-8").splitlines()
        except OSError:
            return None
        events = [json.loads(line) for line in lines if '"validated"' in line and line.endswith("}")]
        found = [(round(100 - one["accuracy"], 4), one["loss"]) for one in events if one.get("best")]
        return found[-1] if found else None


def command(given: argparse.Namespace, run: Run) -> list[str]:
    """Return the command that trains a run."""
    stories = given.stories // (2 if run.task == 3 else 1)
    task, steps = run.task, round(given.steps * MORE_STEPS.get(run.task, 1.0))
    tokens = max(stories * WORDS[task - 1], 1300 if task in (2, 3, 5) else 512)
    parts = {"train": "train", "valid": "valid", "test.test": "test"}
    data = {name: f'{{babi="{given.babi}/qa{task}", part="{part}"}}' for name, part in parts.items()}
    if task == 3 and given.babi == "en-10k":
        data["train"] = '{generate="rooms/train", options={facts=3, size=10000}, fresh=true}'
        data["valid"] = '{generate="rooms/valid", options={facts=3}}'
    words = [sys.executable, "-m", "regard", "train", given.recipe, "--out", str(run.out), "--data", str(given.data)]
    words += [f"data.{name}={table}" for name, table in data.items()]
    words += [f"train.steps={steps}", f"train.tokens={tokens}", f"train.seed={run.seed}", "train.threads=1"]
    words += [f"model.max_sentences={130 if task == 3 else 70}", *MORE_SETTINGS.get(task, ()), *given.overrides]
    return words


def next_task(runs: Sequence[Run], tasks: Sequence[int], seeds: int) -> int | None:
    """Return the task to train next: one without its first runs, else the worst with seeds left that is not solved."""
    counts = {task: sum(run.task == task for run in runs) for task in tasks}
    waiting = [task for task in tasks if counts[task] < SEEDS_AT_ONCE.get(task, 1)]
    if waiting:
        return min(waiting, key=lambda task: LONG.index(task) if task in LONG else len(LONG) + task)
    # Solved tasks need no other seed, and those whose first run has not been validated wait for it.
    errors = {task: best_dev(runs, task) for task in tasks if counts[task] < seeds}
    worst = {task: dev for task, dev in errors.items() if dev is not None and dev[0] > SOLVED}
    return max(worst, key=lambda task: (-counts[task], worst[task])) if worst else None


def best_dev(runs: Sequence[Run], task: int) -> tuple[float, float] | None:
    found = [dev for run in runs if run.task == task and run.code in (None, 0) and (dev := run.dev()) is not None]
    return min(found, default=None)


def train_all(given: argparse.Namespace, folder: Path, environment: dict[str, str]) -> list[Run]:
    """Start runs, at most `jobs` at a time, until nothing is left to do or the time is over."""
    runs: list[Run] = []
    deadline = time.monotonic() + 60 * given.minutes
    typical = 0.0  # seconds of the shortest finished run
    while time.monotonic() < deadline:
        active = [run for run in runs if run.code is None]
        for run in active:
            assert run.process is not None
            run.code = run.process.poll()
            if run.code is not None:
                run.seconds = round(time.monotonic() - run.began, 1)
                typical = min(typical or run.seconds, run.seconds)
                dev = run.dev()
                what = f"dev error {dev[0]:.2f} %, loss {dev[1]:.4f}" if dev and not run.code else errors_of(run)
                say(f"task {run.task}, seed {run.seed}: {run.seconds:.0f} s, {what}")
        active = [run for run in runs if run.code is None]
        task = next_task(runs, given.tasks, given.seeds) if len(active) < given.jobs else None
        # A run that cannot end in time is not worth its start.
        if task is not None and time.monotonic() + typical < deadline:
            seed = 1 + sum(run.task == task for run in runs)
            run = Run(task, seed, folder / f"qa{task}-{seed}")
            with (folder / f"{run.out.name}.txt").open("wb") as log:
                run.process = subprocess.Popen(command(given, run), stdout=log, stderr=log, env=environment)
            runs.append(run)
        elif not active:
            break
        else:
            time.sleep(0.5)
    for run in runs:
        if run.code is None and run.process is not None:
            run.process.terminate()
            run.process.wait()
            say(f"task {run.task}, seed {run.seed}: stopped at the time limit")
    return runs


def errors_of(run: Run) -> str:
    text = run.out.with_name(f"{run.out.name}.txt").read_text(encoding="utf-8", errors="replace")
    return f"failed with exit code {run.code}: {text.strip()[-500:]}"


def test_all(runs: Sequence[Run], given: argparse.Namespace, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Return one line per task: the errors of the run that is best on dev questions, and of the published one."""
    best: dict[int, Run] = {}
    for task in given.tasks:
        ended = [run for run in runs if run.task == task and run.code == 0 and run.dev() is not None]
        if ended:
            best[task] = min(ended, key=lambda run: run.dev() or (100.0, 0.0))
    waiting, found = list(best), {}
    while waiting:
        some, waiting = waiting[: given.jobs], waiting[given.jobs :]
        words = [sys.executable, "-m", "regard", "evaluate", "--json", "--data", str(given.data)]
        started = {
            task: subprocess.Popen([*words, str(best[task].out)], stdout=subprocess.PIPE, env=environment)
            for task in some
        }
        for task, process in started.items():
            [result] = json.loads(process.communicate()[0])
            found[task] = 100 - next(one["value"] for one in result["scores"] if one["name"] == "accuracy")
    return [
        {
            "task": task,
            "error": round(found[task], 2) if task in found else None,
            "published": PUBLISHED[task - 1],
            "dev": [run.dev() for run in runs if run.task == task and run.code == 0],
            "seconds": [run.seconds for run in runs if run.task == task and run.code == 0],
            "seed": best[task].seed if task in best else None,
        }
        for task in given.tasks
    ]


def summarize(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean error and the number of failed tasks: ours, and the published ones of the same tasks."""
    ended = [line for line in lines if line["error"] is not None]

    def both(name: str) -> dict[str, Any]:
        errors = [line[name] for line in ended]
        mean = round(sum(errors) / len(errors), 2) if errors else None
        return {"mean": mean, "failed": sum(error > FAILED for error in errors)}

    return {"tasks": len(ended), "ours": both("error"), "published": both("published")}


def as_table(lines: Sequence[dict[str, Any]], summary: dict[str, Any]) -> str:
    rows = ["| task | error, % | published, % | runs |", "|---:|---:|---:|---:|"]
    for line in lines:
        error = "not finished" if line["error"] is None else f"{line['error']:.1f}"
        rows.append(f"| {line['task']} | {error} | {line['published']:.1f} | {len(line['dev'])} |")
    ours, published = summary["ours"], summary["published"]
    rows.append(f"| mean | {ours['mean']} | {published['mean']} | |")
    rows.append(f"| failed (above {FAILED:.0f} %) | {ours['failed']} | {published['failed']} | |")
    return "\n".join([*rows, ""])


def start_mps(folder: Path) -> dict[str, str]:
    """Start NVIDIA's MPS, with which kernels of several processes run at the same time; return its environment."""
    (folder / "mps").mkdir()
    places = {f"CUDA_MPS_{name}_DIRECTORY": str(folder / "mps") for name in ("PIPE", "LOG")}
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env={**os.environ, **places}, check=True)
    return places


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="of the recipe, such as train.lr=0.01")
    parser.add_argument("--recipe", default="babi-entnet")
    parser.add_argument("--data", type=Path, required=True, help="folder with babi/en-10k, or with en-10k")
    parser.add_argument("--out", type=Path, required=True, help="JSON; a table is written next to it")
    parser.add_argument("--babi", default="en-10k", choices=["en-10k", "en"])
    parser.add_argument("--tasks", type=int, nargs="+", default=list(range(1, 21)))
    parser.add_argument("--seeds", type=int, default=5, help="most runs per task")
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--stories", type=int, default=128, help="per batch, of average length")
    parser.add_argument("--jobs", type=int, default=16, help="runs at a time")
    parser.add_argument("--minutes", type=float, default=8.5, help="time limit of training")
    parser.add_argument("--mps", action="store_true", help="share the GPU through NVIDIA's MPS")
    parser.add_argument("--keep", type=Path, help="folder for the runs, which are deleted otherwise")
    return parser.parse_args(words)


def main() -> None:
    given = parse()
    folder = given.keep or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    places = start_mps(folder) if given.mps else {}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **places}
    began = time.monotonic()
    try:
        runs = train_all(given, folder, environment)
        trained = time.monotonic() - began
        lines = test_all(runs, given, environment)
    finally:
        if given.mps:
            subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", env=environment, check=False)
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    summary = summarize(lines)
    content = {"machine": machine(), "recipe": given.recipe, "summary": summary}
    content |= {"seconds": round(trained, 1), "runs": sum(run.code == 0 for run in runs), "tasks": lines}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    table = as_table(lines, summary)
    given.out.with_suffix(".md").write_text(table, encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()

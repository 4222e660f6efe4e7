"""Compare all families on Multi30k English-German: quality, size, training time, decoding speed, quality by length.

python benchmarks/rivals.py --data ~/data --out benchmarks/results/rivals.json

Non-autoregressive families learn from the Transformer's translations of the training set (`regard distill`).
All scores are on test2016, lower-cased and tokenized; the search settings of each family are in its line.

Several runs train at the same time. The time per step is measured alone on the machine, and the training time of a run is
its number of steps times that. With --work and --seconds the work can be split over several calls: runs are resumed, results
are kept, and a task whose result file exists is not repeated.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import report
from harness import say
from rival import RIVALS, Rival, Task

GRACE = 30.0  # seconds for a stopped run to write its checkpoint


class Study:
    """The tasks, their result files, and the remaining time."""

    def __init__(self, work: Path, data: Path, also: str, seconds: float | None) -> None:
        self.work, self.data, self.also = work, data, also
        self.ends = time.monotonic() + (seconds or float("inf"))
        self.unfinished: list[str] = []
        self._taught = False
        self._locks: dict[str, threading.Lock] = {}  # by output path

    def task(self, do: str, rival: Rival, seed: int = 1) -> Task:
        return Task(do, rival, seed, self.data, self.work, self.also)

    def do(self, task: Task) -> dict[str, Any] | None:
        """Return the result of the task. It is kept in a file and not computed again. None if time ran out."""
        kept = self.work / f"{task.name}.json"
        if not kept.exists():
            if not (self._train(task) if task.do == "train" else self._call(task, kept)):
                self.unfinished.append(task.name)
                return None
            if task.do == "train":
                kept.write_text(json.dumps(_of_log(task.run)), encoding="utf-8")
            say(f"{task.name}: {_short(json.loads(kept.read_text(encoding='utf-8')))}")
        result: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return result

    def _train(self, task: Task) -> bool:
        """Train, and return whether the run is finished; an unfinished run is resumed by the next call."""
        from regard.run.folder import RunFolder

        if task.rival.distilled and not self._distill():
            return False
        words = ["train", task.rival.recipe, "--out", task.run, "--data", self.data, *task.overrides]
        with self._alone(task.run):
            return RunFolder(task.run).finished or self._regard(task.name, *words)

    def _alone(self, path: Path) -> threading.Lock:
        return self._locks.setdefault(str(path), threading.Lock())

    def _distill(self) -> bool:
        """Make the training set of the non-autoregressive families: the translations of the first Transformer."""
        teacher, folder = self.task("train", RIVALS[0]), self.work / "distilled"
        with self._alone(folder):
            if not self._taught and self._train(teacher):
                self._taught = self._regard("distill", "distill", teacher.run, folder, "--data", self.data)
            return self._taught

    def _call(self, task: Task, kept: Path) -> bool:
        if not self._can(task):
            return False
        given = json.dumps({**asdict(task), "data": str(task.data), "work": str(task.work)})
        printed = self._run([sys.executable, str(Path(__file__).with_name("rival.py")), given], task.name)
        if printed is None:
            return False
        kept.write_text(printed.splitlines()[-1], encoding="utf-8")
        return True

    def _can(self, task: Task) -> bool:
        """Return whether the inputs of the task exist now: a trained model, or the training set for timing a step."""
        if task.do != "pace":
            return self._train(task)
        return self._distill() if task.rival.distilled else True

    def _regard(self, name: str, *words: Any) -> bool:
        """Run a regard command, and return whether it completed."""
        return self._run([sys.executable, "-m", "regard", *map(str, words)], name) is not None

    def _run(self, command: list[str], name: str) -> str | None:
        """Return what the command printed; None if time ran out."""
        if time.monotonic() > self.ends:
            return None
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        try:
            printed, complaints = process.communicate(timeout=min(self.ends - time.monotonic(), 1e6))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
            return None
        if process.returncode:
            raise SystemExit(f"{name} failed: {complaints[-2000:]}")
        return printed


def _short(result: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value:.2f}" for key, value in result.items() if isinstance(value, float))


def _of_log(run: Path) -> dict[str, Any]:
    """Return the number of steps in total, and up to the first validation with 30 BLEU on the dev set."""
    from regard.run.folder import RunFolder

    log = RunFolder(run).read_log()
    found = [event["step"] for event in log if event["event"] == "validated" and event.get("bleu", 0.0) >= 30.0]
    return {"steps": max(event["step"] for event in log), "steps_to_30": found[0] if found else None}


# The table and the picture


def summarize(found: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return one line per rival, with means over seeds."""
    lines = []
    for rival in (one for one in RIVALS if one.name in found):
        runs = found[rival.name]
        lines.append(
            {
                "rival": rival.name,
                "bleu": statistics.mean(run["bleu"] for run in runs),
                "bleus": [round(run["bleu"], 2) for run in runs],
                "interval": runs[0]["interval"],
                "parameters": runs[0]["parameters"],
                "milliseconds_a_step": runs[0]["milliseconds"],
                "seconds": runs[0]["steps"] * runs[0]["milliseconds"] / 1000,
                "seconds_to_30": _mean_or_none([run["steps_to_30"] for run in runs], runs[0]["milliseconds"] / 1000),
                "speed": runs[0]["speed"],
                "by_length": {
                    key: statistics.mean(run["by_length"][key]["bleu"] for run in runs) for key in runs[0]["by_length"]
                },
                "original": rival.original,
            }
        )
    return lines


def _mean_or_none(steps: list[int | None], seconds: float) -> float | None:
    reached = [one for one in steps if one is not None]
    return statistics.mean(reached) * seconds if len(reached) == len(steps) else None


def as_table(lines: list[dict[str, Any]]) -> str:
    rows = [
        "| | BLEU (95 % of the first seed) | seeds | parameters | training, s | to 30 BLEU, s | tokens/s, batch 1 | 64 "
        "| by words of the source: " + ", ".join(lines[0]["by_length"]) + " | its authors |",
        "|---|---|---|---:|---:|---:|---:|---:|---|---|",
    ]
    for line in lines:
        low, high = line["interval"]
        to_30 = "" if line["seconds_to_30"] is None else f"{line['seconds_to_30']:.0f}"
        single = [f"{value:,.0f}" for key, value in line["speed"].items() if key.startswith("batch 1,")]
        many = [f"{value:,.0f}" for key, value in line["speed"].items() if key.startswith("batch 64,")]
        rows.append(
            f"| {line['rival']} | {line['bleu']:.2f} ({low:.1f} to {high:.1f}) | {', '.join(map(str, line['bleus']))} "
            f"| {line['parameters'] / 1e6:.1f} M | {line['seconds']:.0f} | {to_30} "
            f"| {' / '.join(single)} | {' / '.join(many)} "
            f"| {', '.join(f'{value:.1f}' for value in line['by_length'].values())} | {line['original']} |"
        )
    return "\n".join([*rows, "", "Two speeds: greedy, and with the beam that the BLEU is of.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    report.add_flags(parser)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--only", nargs="+", metavar="RIVAL", choices=[rival.name for rival in RIVALS], help="only these"
    )
    parser.add_argument("--at-once", type=int, default=1, help="runs at a time")
    parser.add_argument(
        "--also", default="", help="overrides for all rivals, such as train.steps=200 for a quick check"
    )
    parser.add_argument("--work", type=Path, help="folder that keeps runs between calls; temporary if not given")
    parser.add_argument("--seconds", type=float, help="stop after this time; the same call resumes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        study = Study(work.resolve(), arguments.data.resolve(), arguments.also, arguments.seconds)
        rivals = [rival for rival in RIVALS if not arguments.only or rival.name in arguments.only]
        found = run_all(study, rivals, range(1, arguments.seeds + 1), arguments.at_once)
    if found is None:
        raise SystemExit(f"out of time; the same call resumes. Not done: {', '.join(study.unfinished)}")
    lines = summarize(found)
    report.write(arguments.out, {"study": "rivals", "lines": lines, "runs": found}, as_table(lines))
    curves = {line["rival"]: (list(line["by_length"]), list(line["by_length"].values())) for line in lines}
    report.draw_lines(arguments.out.with_suffix(".svg"), curves, across="words of the source", up="BLEU, test2016")


def run_all(
    study: Study, rivals: Sequence[Rival], seeds: Sequence[int], at_once: int
) -> dict[str, list[dict[str, Any]]] | None:
    """Return the results of all seeds by rival; None if time ran out."""
    every = [study.task("score", rival, seed) for rival in rivals for seed in seeds]
    paces = {task.recipe: study.do(replace(task, do="pace")) for task in every if task.seed == 1}
    if study.unfinished:
        return None
    by_run: dict[Path, list[Task]] = {}  # rivals that differ only in search are trained once
    for task in every:
        by_run.setdefault(task.run, []).append(task)

    def train_and_score(tasks: list[Task]) -> None:
        if study.do(replace(tasks[0], do="train")) is not None:
            for task in tasks:
                study.do(task)

    longest_first = sorted(by_run.values(), key=lambda tasks: -_seconds(tasks[0], paces))
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(train_and_score, longest_first))
    speeds = {rival.name: study.do(study.task("speed", rival)) for rival in rivals}
    if study.unfinished:
        return None
    found: dict[str, list[dict[str, Any]]] = {rival.name: [] for rival in rivals}
    for task in every:
        parts = [paces[task.recipe], study.do(replace(task, do="train")), study.do(task)]
        known = {key: value for part in parts if part for key, value in part.items()}
        found[task.rival.name].append(known | {"speed": speeds[task.rival.name]})
    return found


def _seconds(task: Task, paces: dict[str, dict[str, Any] | None]) -> float:
    """Return the training time of a run, alone on the machine."""
    return task.steps * float((paces[task.recipe] or {})["milliseconds"]) / 1000


if __name__ == "__main__":
    main()

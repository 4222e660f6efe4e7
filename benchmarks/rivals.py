"""All families on Multi30k English-German, one table: quality, size, training time, decoding speed, quality by length.

python benchmarks/rivals.py --data ~/data --out benchmarks/results/rivals.json

Families that write all tokens at once learn from the Transformer's translations of the training set (`regard distill`).
Everything is scored on test2016, lower-cased and tokenised; what each family was searched with is in its line.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import studies
from harness import say

RECIPE = "multi30k-en-de"
LENGTHS = [(1, 9), (10, 12), (13, 15), (16, 19), (20, 99)]  # words of the source
RESAMPLES = 200  # of the test set, for the interval


@dataclass(frozen=True)
class Rival:
    """A family, how it is trained and searched, and what its authors reported."""

    name: str
    recipe: str
    overrides: str = ""
    beam: int = 5
    distilled: bool = False
    judged: bool = False
    original: str = ""


RIVALS = [
    Rival("Transformer", RECIPE, original="27.3 BLEU, WMT14 En-De (base)"),
    Rival("Transformer, window 8", RECIPE, "model.window=8"),
    Rival("RNN, additive attention", f"{RECIPE}-rnn", original="26.75 BLEU, WMT14 En-Fr (RNNsearch-50)"),
    Rival("RNN, general attention", f"{RECIPE}-rnn", "model.attention=general", original="19.0 BLEU, WMT14 En-De (local-p)"),
    Rival("RNN, no attention", f"{RECIPE}-rnn", "model.attention=none", original="17.82 BLEU, WMT14 En-Fr (RNNencdec-50)"),
    Rival("ConvS2S", f"{RECIPE}-convs2s", original="25.16 BLEU, WMT14 En-De"),
    Rival("ByteNet, characters", f"{RECIPE}-bytenet", original="23.75 BLEU, WMT14 En-De"),
    Rival("NAT with fertilities", f"{RECIPE}-nat", beam=1, distilled=True, original="17.35 BLEU, WMT14 En-De"),
    Rival("NAT, 10 candidates, judged", f"{RECIPE}-nat", beam=10, distilled=True, judged=True, original="18.66 BLEU, En-De"),
    Rival("mask-predict, 10 iterations", f"{RECIPE}-cmlm", beam=5, distilled=True, original="27.03 BLEU, WMT14 En-De"),
    Rival("CTC", f"{RECIPE}-ctc", beam=1, distilled=True, original="25.52 BLEU, WMT14 En-De"),
]  # fmt: skip


@dataclass(frozen=True)
class Task:
    """One rival with one seed, to be trained or measured in a process of its own."""

    do: str  # "train" or "measure"
    rival: dict[str, Any]
    seed: int
    data: str
    work: str
    also: str  # overrides for all

    @property
    def run(self) -> Path:
        """Rivals that differ in search alone share a run."""
        own = f"{self.rival['recipe']} {self.rival['overrides']}".replace(RECIPE, "Transformer", 1).strip()
        return Path(self.work) / f"run-{own.replace(' ', '_')}-{self.seed}"


def run_task(task: Task) -> dict[str, Any]:
    """What the task gives; kept in a file, and not done again."""
    name = f"{task.do} {task.rival['name']} {task.seed}".replace(",", "").replace(" ", "-")
    kept = Path(task.work) / f"{name}.json"
    if not kept.exists():
        command = [sys.executable, str(Path(__file__)), json.dumps(vars(task))]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{name} failed: {done.stderr[-2000:]}")
        kept.write_text(done.stdout.splitlines()[-1], encoding="utf-8")
    result: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    say(f"{name}: " + (f"BLEU {result['bleu']:.2f}" if task.do == "measure" else f"{result['seconds']:.0f} s"))
    return result


def distill(teacher: Path, data: Path, folder: Path) -> None:
    """Makes the training set of those that write at once: the first Transformer's translations."""
    command = [sys.executable, "-m", "regard", "distill", str(teacher), str(folder), "--data", str(data)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


# One rival, in its own process


def train(task: Task) -> dict[str, Any]:
    from regard import api

    overrides = [*task.rival["overrides"].split(), *task.also.split(), f"train.seed={task.seed}"]
    if task.rival["distilled"]:
        folder = Path(task.work) / "distilled"
        overrides += [f"data.train.source={folder / 'source.txt'}", f"data.train.target={folder / 'target.txt'}"]
    log = api.train(task.rival["recipe"], out=task.run, overrides=overrides, data=task.data).run.read_log()
    return {"seconds": max(event.get("seconds", 0.0) for event in log), "seconds_to_30": _seconds_to(30.0, log)}


def measure(task: Task) -> dict[str, Any]:
    from regard import api
    from regard.decoding.translator import search_options
    from regard.evaluation.metrics import METRICS
    from regard.run.folder import RunFolder
    from regard.text.bitext import load_bitext

    config, beam = RunFolder(task.run).recipe(), task.rival["beam"]
    judge = Path(task.work) / "run-Transformer-1" if task.rival["judged"] else None
    translator = api.load(task.run, judge=judge)
    pairs = load_bitext(config.data.test["test2016"], folders=[Path(task.data)])
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    outputs = translator.translate(sources, options=search_options(config.decode, beam=beam))
    metric = METRICS["bleu"]

    def bleu(rows: Sequence[int]) -> float:
        return metric([outputs[n] for n in rows], [references[n] for n in rows], config.evaluate).value

    everything, draw = range(len(pairs)), random.Random(1)
    resampled = sorted(bleu(draw.choices(everything, k=len(pairs))) for _ in range(RESAMPLES))
    by_length = {}
    for least, most in LENGTHS:
        rows = [n for n in everything if least <= len(sources[n].split()) <= most]
        by_length[f"{least}-{most}"] = {"sentences": len(rows), "bleu": round(bleu(rows), 2)}
    return {
        "bleu": bleu(everything),
        "interval": [resampled[int(0.025 * len(resampled))], resampled[int(0.975 * len(resampled))]],
        "signature": metric(outputs, references, config.evaluate).signature,
        "by_length": by_length,
        "parameters": translator.model.num_parameters(),
        "tokens_per_second": {
            f"batch {size}, beam {width}": _speed(translator, sources[:count], size, width)
            for size, count in ((1, 64), (64, 512))
            for width in sorted({1, beam})
            if task.seed == 1
        },
    }


def _seconds_to(goal: float, log: list[dict[str, Any]]) -> float | None:
    """Seconds of training at the first validation with so much BLEU on the dev set."""
    seconds = 0.0
    for event in log:
        seconds = event.get("seconds", seconds)
        if event["event"] == "validated" and event.get("bleu", 0.0) >= goal:
            return seconds
    return None


def _speed(translator: Any, sources: Sequence[str], size: int, beam: int) -> float:
    """Target tokens a second, this many sentences at a time."""
    from regard.decoding.translator import search_options

    options = search_options(translator.config, beam=beam)
    groups = [sources[at : at + size] for at in range(0, len(sources), size)]
    translator.translate(groups[0], options=options)
    began, tokens = time.perf_counter(), 0
    for group in groups:
        texts = translator.translate(group, options=options)
        tokens += sum(len(ids) + 1 for ids in translator.tokenizers.target.encode_all(texts))
    return round(tokens / (time.perf_counter() - began), 1)


# The table and the picture


def summarize(found: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A line a rival: means over seeds."""
    lines = []
    for rival in RIVALS:
        runs = found[rival.name]
        lines.append(
            {
                "rival": rival.name,
                "bleu": statistics.mean(run["bleu"] for run in runs),
                "bleus": [round(run["bleu"], 2) for run in runs],
                "interval": runs[0]["interval"],
                "parameters": runs[0]["parameters"],
                "seconds": runs[0]["seconds"],  # of the first seed, which had the machine to itself
                "seconds_to_30": runs[0]["seconds_to_30"],
                "speed": runs[0]["tokens_per_second"],
                "by_length": {
                    key: statistics.mean(run["by_length"][key]["bleu"] for run in runs) for key in runs[0]["by_length"]
                },
                "original": rival.original,
            }
        )
    return lines


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
    studies.add_flags(parser)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=1, help="runs at a time, of the second seed and on")
    parser.add_argument("--also", default="", help="overrides for all, as train.steps=20 for a quick look")
    parser.add_argument("--work", type=Path, help="where runs are kept, to go on with; a temporary folder if not given")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)

        def task(do: str, rival: Rival, seed: int) -> Task:
            return Task(do, vars(rival), seed, str(arguments.data), str(work), arguments.also)

        teacher = task("train", RIVALS[0], 1)
        run_task(teacher)
        distill(teacher.run, arguments.data, work / "distilled")
        found: dict[str, list[dict[str, Any]]] = {rival.name: [] for rival in RIVALS}
        alone = [run_task(task("train", rival, 1)) for rival in RIVALS]  # so that its seconds are its own
        with ThreadPoolExecutor(arguments.at_once) as pool:
            later = [task("train", rival, seed) for seed in range(2, arguments.seeds + 1) for rival in RIVALS]
            list(pool.map(run_task, _one_of_each_run(later)))
        for rival, trained in zip(RIVALS, alone, strict=True):
            for seed in range(1, arguments.seeds + 1):
                found[rival.name].append({**trained, **run_task(task("measure", rival, seed))})
    lines = summarize(found)
    studies.write(arguments.out, {"study": "rivals", "lines": lines, "runs": found}, as_table(lines))
    curves = {line["rival"]: (list(line["by_length"]), list(line["by_length"].values())) for line in lines}
    studies.draw_lines(arguments.out.with_suffix(".svg"), curves, across="words of the source", up="BLEU, test2016")


def _one_of_each_run(tasks: list[Task]) -> list[Task]:
    """No two that would train the same run at once."""
    return list({one.run: one for one in tasks}.values())


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        given = Task(**json.loads(sys.argv[1]))
        print(json.dumps(train(given) if given.do == "train" else measure(given)))
    else:
        main()

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


def run_one(rival: Rival, seed: int, data: Path, work: Path, also: str) -> dict[str, Any]:
    """Trains (once for rivals that differ in search alone) and measures one rival, in a process of its own."""
    task = {"rival": vars(rival), "seed": seed, "data": str(data), "work": str(work), "also": also}
    done = subprocess.run([sys.executable, str(Path(__file__)), json.dumps(task)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{rival.name} failed: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    say(f"{rival.name}, seed {seed}: BLEU {result['bleu']:.2f}, {result['seconds']:.0f} s of training")
    return result


def distill_from_the_first(data: Path, work: Path, also: str) -> None:
    """Makes the training set of those that write at once: the first Transformer's translations."""
    run_one(RIVALS[0], 1, data, work, also)
    folder = work / "distilled"
    command = [
        sys.executable,
        "-m",
        "regard",
        "distill",
        str(work / "run-Transformer-1"),
        str(folder),
        "--data",
        str(data),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


# One rival, in its own process


def _worker(rival: Rival, seed: int, data: Path, work: Path, also: str) -> dict[str, Any]:
    from regard import api
    from regard.decoding.translator import search_options
    from regard.evaluation.metrics import METRICS
    from regard.run.folder import RunFolder
    from regard.text.bitext import load_bitext

    overrides = [*rival.overrides.split(), *also.split(), f"train.seed={seed}"]
    if rival.distilled:
        folder = work / "distilled"
        overrides += [f"data.train.source={folder / 'source.txt'}", f"data.train.target={folder / 'target.txt'}"]
    trained_as = f"{rival.recipe} {rival.overrides}".replace(RECIPE, "Transformer", 1).strip().replace(" ", "_")
    path = work / f"run-{trained_as}-{seed}"
    api.train(rival.recipe, out=path, overrides=overrides, data=data)
    run = RunFolder(path)
    log, config = run.read_log(), run.recipe()
    judge = work / "run-Transformer-1" if rival.judged else None
    translator = api.load(path, judge=judge)
    pairs = load_bitext(config.data.test["test2016"], folders=[data])
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    options = search_options(config.decode, beam=rival.beam)
    outputs = translator.translate(sources, options=options)
    metric = METRICS["bleu"]

    def bleu(rows: Sequence[int]) -> float:
        return metric([outputs[n] for n in rows], [references[n] for n in rows], config.evaluate).value

    everything = range(len(pairs))
    draw = random.Random(1)
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
        "seconds": max(event.get("seconds", 0.0) for event in log),
        "seconds_to_30": _seconds_to(30.0, log),
        "tokens_per_second": {
            f"batch {size}, beam {beam}": _speed(translator, sources[:count], size, beam)
            for size, count in ((1, 64), (64, 512))
            for beam in sorted({1, rival.beam})
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
        reached = [run["seconds_to_30"] for run in runs]
        lines.append(
            {
                "rival": rival.name,
                "bleu": statistics.mean(run["bleu"] for run in runs),
                "bleus": [round(run["bleu"], 2) for run in runs],
                "interval": runs[0]["interval"],
                "parameters": runs[0]["parameters"],
                "seconds": statistics.mean(run["seconds"] for run in runs),
                "seconds_to_30": None if None in reached else statistics.mean(reached),
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
    parser.add_argument("--only", help="comma-separated names, to run fewer")
    parser.add_argument("--also", default="", help="overrides for all, as train.steps=20 for a quick look")
    parser.add_argument("--work", type=Path, help="where runs are kept, to go on with; a temporary folder if not given")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        distill_from_the_first(arguments.data, work, arguments.also)
        wanted = [rival for rival in RIVALS if not arguments.only or rival.name in arguments.only.split(",")]
        found = {
            rival.name: [
                run_one(rival, seed, arguments.data, work, arguments.also) for seed in range(1, arguments.seeds + 1)
            ]
            for rival in wanted
        }
    lines = summarize(found) if len(found) == len(RIVALS) else []
    studies.write(arguments.out, {"study": "rivals", "lines": lines, "runs": found}, as_table(lines) if lines else "")
    if lines:
        curves = {line["rival"]: (list(line["by_length"]), list(line["by_length"].values())) for line in lines}
        picture = arguments.out.with_suffix(".svg")
        studies.draw_lines(picture, curves, across="words of the source", up="BLEU, test2016")


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        given = json.loads(sys.argv[1])
        rival, data, work = Rival(**given["rival"]), Path(given["data"]), Path(given["work"])
        print(json.dumps(_worker(rival, given["seed"], data, work, given["also"])))
    else:
        main()

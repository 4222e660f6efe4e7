"""Compare the latency of non-autoregressive models with that of our own token-by-token search.

python benchmarks/latency.py runs/multi30k-en-de runs/multi30k-en-de-nat --data ~/data --out benchmarks/results/latency.json

On a GPU, search steps are recorded as CUDA graphs, as usual. Times are for complete calls, from text to text.
"""

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

import report
from harness import say
from machine import machine_seconds, process_seconds
from regard import loading
from regard.decoding.translator import Translator
from regard.run.folder import RunFolder
from regard.text.bitext import load_bitext

SIZES = {1: 100, 64: 512}  # sentences per call: sentences in all


def ways(run: Path, rescorer: Path, device: str) -> dict[str, tuple[Translator, dict[str, int]]]:
    """Return the variants of a run to measure, by name: a translator and search options each."""
    config = RunFolder(run).recipe()
    kind, translator = config.model["kind"], loading.load(run, device=device)
    if not translator.model.non_autoregressive:
        return {f"{kind}, greedy": (translator, {"beam": 1}), f"{kind}, beam 4": (translator, {"beam": 4})}
    if kind == "cmlm":
        return {f"{kind}, {n} iterations": (translator, {"beam": 5, "iterations": n}) for n in (4, 10)}
    found = {f"{kind}, argmax": (translator, {"beam": 1})}
    if kind == "nat":
        rescored = loading.load(run, device=device, rescorer=rescorer)
        found[f"{kind}, 10 candidates, rescored"] = (rescored, {"beam": 10})
    return found


def seconds_of(translator: Translator, options: dict[str, int], groups: list[list[str]]) -> list[float]:
    """Return the seconds that the translation of each group takes."""
    chosen, times = translator.options.replace(**options), []
    for group in groups:
        began = time.perf_counter()
        translator.translate(group, options=chosen)
        times.append(time.perf_counter() - began)
    return times


def measure(found: dict[str, tuple[Translator, dict[str, int]]], texts: list[str], rounds: int) -> list[dict[str, Any]]:
    """Return one line per variant and size: milliseconds per call, the median over calls and rounds."""
    lines = []
    for size, count in SIZES.items():
        groups = [texts[at : at + size] for at in range(0, count, size)]
        times: dict[str, list[float]] = {name: [] for name in found}
        for number in range(rounds + 1):
            for name, (translator, options) in found.items():
                took = seconds_of(translator, options, groups)
                times[name] += took if number else []  # the first round warms up
        for name, took in times.items():
            lines.append({"way": name, "sentences": size, "milliseconds": round(1000 * statistics.median(took), 3)})
            say(f"{name}, {size} at a time: {lines[-1]['milliseconds']:.2f} ms")
    return lines


def as_table(lines: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(line["way"] for line in lines))
    by = {(line["way"], line["sentences"]): line["milliseconds"] for line in lines}
    rows = [
        "| | 1 sentence, ms | of greedy search | 64 sentences, ms | of greedy search |",
        "|---|---:|---:|---:|---:|",
    ]
    for name in names:
        cells = [f"{by[name, size]:.2f} | {by[name, size] / by[names[0], size]:.2f}" for size in SIZES]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*rows, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    report.add_flags(parser)
    parser.add_argument("runs", type=Path, nargs="+", help="the first one is autoregressive, and the rescorer")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    found: dict[str, tuple[Translator, dict[str, int]]] = {}
    for run in arguments.runs:
        found |= ways(run, arguments.runs[0], arguments.device)
    test = RunFolder(arguments.runs[0]).recipe().data.test["test2016"]
    texts = [pair.source for pair in load_bitext(test, folders=[arguments.data])]
    busy, own, began = machine_seconds(), process_seconds(os.getpid()), time.perf_counter()
    lines = measure(found, texts, arguments.rounds)
    others = (machine_seconds() - busy) - (process_seconds(os.getpid()) - own)
    share = max(0.0, others) / (time.perf_counter() - began) / (os.cpu_count() or 1)
    device = str(next(found[lines[0]["way"]][0].model.parameters()).device)
    result = {"study": "latency", "device": device, "used_by_others": round(share, 3), "lines": lines}
    report.write(arguments.out, result, as_table(lines))


if __name__ == "__main__":
    main()

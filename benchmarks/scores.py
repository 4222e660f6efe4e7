"""Score our recipes with the ordinary commands: several seeds each, one run at a time, with a card per run.

python benchmarks/scores.py --data ~/data --out benchmarks/results/scores.json

The wall-clock time of a run is from the start of its process until its final weights are on disk.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import report

# Text-only Transformer-Tiny, Wu et al. 2021, "Good for Misconceived Reasons": the best published text-only system.
PUBLISHED = {
    "multi30k-en-de": {"test2016": 41.02, "test2017": 33.36},
    "multi30k-en-fr": {"test2016": 61.80, "test2017": 53.46},
}


def one_run(recipe: str, seed: int, data: Path, keep: Path) -> dict[str, Any]:
    """Run `regard train` and `regard card`; return the card, with the wall-clock time of training."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / f"{recipe}-{seed}"
        began = time.monotonic()
        _regard("train", recipe, "--out", str(out), "--data", str(data), f"train.seed={seed}")
        seconds = time.monotonic() - began
        _regard("card", str(out), "--data", str(data))
        card: dict[str, Any] = json.loads((out / "card.json").read_text(encoding="utf-8"))
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{out.name}.md").write_text((out / "card.md").read_text(encoding="utf-8"), encoding="utf-8")
    bleus = {
        result["name"]: next(score["value"] for score in result["scores"] if score["name"] == "bleu")
        for result in card["results"]
    }
    report.say(f"{recipe}, seed {seed}: {seconds:.1f} s, " + ", ".join(f"{k} {v:.2f}" for k, v in bleus.items()))
    return {"seed": seed, "wall_clock": round(seconds, 1), "bleu": bleus, "card": card}


def _regard(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "regard", *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"regard {' '.join(words)} failed: {done.stderr[-2000:]}")


def summarize(runs: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return one line per test set: the BLEU of every seed, the mean, and the best published result."""
    return [
        {
            "recipe": recipe,
            "test": test,
            "bleu": round(statistics.mean(one["bleu"][test] for one in found), 2),
            "bleus": [round(one["bleu"][test], 2) for one in found],
            "published": PUBLISHED.get(recipe, {}).get(test),
            "wall_clock": [one["wall_clock"] for one in found],
        }
        for recipe, found in runs.items()
        for test in found[0]["bleu"]
    ]


def as_table(lines: list[dict[str, Any]]) -> str:
    rows = [
        "| recipe | test set | BLEU, mean | of each seed | best published | seconds from process start to weights |",
        "|---|---|---:|---|---:|---|",
    ]
    rows += [
        f"| {line['recipe']} | {line['test']} | {line['bleu']:.2f} | {', '.join(f'{one:.2f}' for one in line['bleus'])} "
        f"| {line['published'] or ''} | {', '.join(f'{one:.0f}' for one in line['wall_clock'])} |"
        for line in lines
    ]
    return "\n".join([*rows, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    report.add_flags(parser)
    parser.add_argument("--recipes", default="multi30k-en-de,multi30k-en-fr")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    cards = arguments.out.parent / "cards"
    runs = {
        recipe: [one_run(recipe, seed, arguments.data, cards) for seed in range(1, arguments.seeds + 1)]
        for recipe in arguments.recipes.split(",")
    }
    lines = summarize(runs)
    report.write(arguments.out, {"study": "scores", "lines": lines, "runs": runs}, as_table(lines))


if __name__ == "__main__":
    main()

"""Translate a test set with each kind of noise in its sources (`data.augment`), and compare the BLEU scores of runs.

python benchmarks/noise.py without=RUN with=RUN --data DIR --out benchmarks/results/noise.json

Each kind changes all sources that it can change. The references stay as they are. The test set is the first of the run's
recipe.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import sacrebleu

from machine import machine
from regard.loading import load_translator
from regard.run.finding import find_run
from regard.text.augment import NOISES
from regard.text.bitext import load_bitext


def main() -> None:
    """Print a table with a row per kind of noise, and a column per run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="NAME=RUN")
    parser.add_argument("--data", type=Path, required=True, help="folder of the recipe's text")
    parser.add_argument("--lines", type=int, default=1000, help="of the test set")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    runs = dict(one.split("=", 1) for one in given.runs)
    translators = {name: load_translator(run, "translate") for name, run in runs.items()}
    recipe = find_run(next(iter(runs.values()))).recipe()
    test = next(iter(recipe.data.test.values()))
    pairs = load_bitext(test, folders=[given.data], data=recipe.data)[: given.lines]
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    rows = {"none": sources}
    for name, noise in NOISES.items():
        rows[name] = [noise(source, random.Random(f"{name} {number}")) for number, source in enumerate(sources)]
    scores: dict[str, dict[str, float]] = {}
    print(f"| noise | {' | '.join(runs)} | changed |\n|---|{'---:|' * (len(runs) + 1)}")
    for noise, noisy in rows.items():
        changed = sum(one != other for one, other in zip(noisy, sources, strict=True))
        scores[noise] = {"changed": changed} | {
            name: round(sacrebleu.corpus_bleu(translator.translate(noisy), [references]).score, 2)
            for name, translator in translators.items()
        }
        print(f"| {noise} | {' | '.join(f'{scores[noise][name]:.2f}' for name in runs)} | {changed} |", flush=True)
    if given.out:
        result = {"test": len(sources), "bleu": scores, "machine": machine()}
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Make contrastive pairs of a test set, and count how often each model prefers the right translation.

python benchmarks/contrast.py --data DIR --out benchmarks/results/contrast.json

The pairs are made of the test set of each run's recipe (`regard.text.contrasts`): numbers changed, negation added or
removed, names exchanged or replaced. A table has a row per model and category.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from machine import machine
from regard.contrasting import accuracies, contrast
from regard.loading import load_translator
from regard.run.finding import find_run
from regard.text.bitext import load_bitext
from regard.text.contrasts import make_contrasts

SHOWN = 5  # pairs of each category that the model gets wrong


def measure(run: str, data: Path, lines: int | None) -> dict[str, object]:
    """Return the accuracies of one model, and examples of its mistakes."""
    recipe = find_run(run).recipe()
    test = next(iter(recipe.data.test.values()))
    pairs = load_bitext(test, folders=[data], data=recipe.data)[:lines]
    preferences = contrast(load_translator(run, "score"), make_contrasts(pairs, language=run.split("-")[1]))
    rows = []
    for one in accuracies(preferences):
        mistakes = [each for each in preferences if each.pair.category == one.category and not each.correct]
        low, high = one.interval
        rows.append(
            {
                "category": one.category or "all",
                "pairs": one.total,
                "correct": one.correct,
                "accuracy": round(100 * one.accuracy, 2),
                "interval": [round(100 * low, 2), round(100 * high, 2)],
                "mistakes": [each.pair._asdict() for each in mistakes[:SHOWN]],
            }
        )
        print(f"| {run} | {rows[-1]['category']} | {one.total:,} | {one.accuracy:.1%} | {low:.1%} to {high:.1%} |")
    return {"sentences": len(pairs), "results": rows}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="+", default=["en-de", "de-en"], help="named SOURCE-TARGET")
    parser.add_argument("--data", type=Path, required=True, help="folder of the recipe's text")
    parser.add_argument("--lines", type=int, help="of the test set; all by default")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    print("| model | mistake | pairs | accuracy | 95 % interval |\n|---|---|---:|---:|---|")
    models = {run: measure(run, given.data, given.lines) for run in given.runs}
    if given.out:
        text = json.dumps({"models": models, "machine": machine()}, indent=1, ensure_ascii=False)
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

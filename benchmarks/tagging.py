"""Compare two tagging runs on a test set: accuracy or span F1 of both, and how likely the difference is by chance.

    python -m benchmarks.tagging runs/ewt-upos runs/ewt-upos-init --data DIR

The p-value is that of a paired permutation test over sentences: in each trial the outputs of the two runs are exchanged in a
random half of the sentences. It is the share of trials whose difference is at least as large as the measured one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import regard
from regard.metrics import spans
from regard.run.finding import find_run
from regard.text.bitext import data_folders, load_bitext
from regard.torch_loading import task_of_run

TRIALS = 10_000


def counts(outputs: Sequence[str], references: Sequence[str], metric: str) -> NDArray[np.int64]:
    """Return for each sentence twice the number of what is right, and of what is output plus what is expected: [S, 2]."""
    rows = []
    for output, reference in zip(outputs, references, strict=True):
        own, theirs = output.split(), reference.split()
        if metric == "span_f1":
            found, expected = set(spans(own)), set(spans(theirs))
            rows.append((2 * len(found & expected), len(found) + len(expected)))
        else:
            right = sum(one == other for one, other in zip(own, theirs, strict=False))
            rows.append((2 * right, 2 * len(theirs)))
    return np.array(rows, dtype=np.int64)


def score(total: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the metric in percent, of sums of `counts`: [..., 2] to [...]."""
    return np.asarray(100 * total[..., 0] / np.maximum(total[..., 1], 1), dtype=np.float64)


def p_value(first: NDArray[np.int64], second: NDArray[np.int64], *, trials: int = TRIALS, seed: int = 1) -> float:
    """Return how likely a difference at least this large is if the two systems are alike."""
    measured = abs(float(score(second.sum(axis=0)) - score(first.sum(axis=0))))
    random, larger = np.random.default_rng(seed), 0
    for _ in range(trials):
        exchanged = random.random(len(first))[:, None] < 0.5
        one, other = np.where(exchanged, second, first).sum(axis=0), np.where(exchanged, first, second).sum(axis=0)
        larger += abs(float(score(other) - score(one))) >= measured - 1e-12
    return (larger + 1) / (trials + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--metric", choices=["accuracy", "span_f1"], default="accuracy")
    options = parser.parse_args()
    recipe, folders = task_of_run(find_run(options.first)).recipe, data_folders(options.data, None)
    for name, bitext in recipe.data.test.items():
        pairs = load_bitext(bitext, folders=folders, data=recipe.data)
        references = [pair.target for pair in pairs]
        both = [
            counts(regard.load(run).predict([pair.source for pair in pairs]), references, options.metric)
            for run in (options.first, options.second)
        ]
        first, second = (float(score(one.sum(axis=0))) for one in both)
        print(
            f"{name}: {options.metric} {first:.2f} and {second:.2f}, difference {second - first:+.2f}, "
            f"p = {p_value(*both):.4f} (paired permutation test, {len(pairs):,} sentences, {TRIALS:,} trials)"
        )


if __name__ == "__main__":
    main()

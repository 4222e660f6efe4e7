"""Measure search with a shortlist in a large model of random weights: output tokens per CPU second.

python benchmarks/shortlist.py --out benchmarks/results/shortlist.json

The model is the preset `base` with a vocabulary of 37,000. Sentences have random tokens. Each has a vocabulary of the 1,000
most frequent tokens and `--likely` others, which differ between sentences as much as they can; those of real text overlap
more. All outputs have the same length. Every case is timed once per round, in turn, with one thread; the result is the
median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np
import torch

from machine import machine
from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.constraints import Demands
from regard.decoding.search import search
from regard.decoding.shortlist import FREQUENT
from regard.models import build_model
from regard.models.base import Seq2Seq
from regard.text.symbols import EOS

FIRST = 4  # the first id that is no special symbol


class Sentences:
    """Random sources, with a vocabulary of likely outputs for each."""

    def __init__(self, count: int, *, length: int, size: int, likely: int) -> None:
        draw = np.random.default_rng(1)
        self.source = Ragged.from_lists(
            [[*draw.integers(FIRST, size, length).tolist(), EOS] for _ in range(count)], "cpu"
        )
        frequent = np.arange(FIRST, FIRST + FREQUENT)
        self.vocabularies = [
            np.unique(np.concatenate([[EOS], frequent, draw.integers(FIRST, size, likely)])) for _ in range(count)
        ]
        self.union = len(np.unique(np.concatenate(self.vocabularies)))

    def seconds(self, model: Seq2Seq, options: SearchOptions, *, shortlist: bool) -> float:
        automata = [None] * len(self.vocabularies)
        demands = Demands(automata, vocabularies=self.vocabularies) if shortlist else None
        began = time.process_time()
        search(model, self.source, options=options, demands=demands)
        return time.process_time() - began


def main() -> None:
    """Measure batches of one and of many sentences, without and with beams, shortlists and 8-bit products."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="base")
    parser.add_argument("--size", type=int, default=37_000, help="of the vocabulary")
    parser.add_argument("--likely", type=int, default=250, help="tokens that each sentence adds to the frequent ones")
    parser.add_argument("--length", type=int, default=20, help="tokens of sources and of outputs")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32], help="sentences per batch")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    table = {"kind": "transformer", "preset": given.preset}
    plain = build_model(table, source_size=given.size, target_size=given.size).eval()
    models = {"float32": plain.for_inference(), "int8": plain.for_inference(int8=True)}
    assert all(isinstance(model, Seq2Seq) for model in models.values())
    rows = []
    for (name, model), batch, beam in product(models.items(), given.batches, given.beams):
        sentences = Sentences(batch, length=given.length, size=given.size, likely=given.likely)
        options = SearchOptions(beam=beam, min_length=given.length, max_length=given.length)
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for number, short in product(range(given.rounds + 1), (False, True)):
            one = sentences.seconds(model, options, shortlist=short)
            if number:  # the first warms up
                seconds[short].append(one)
        speed = {short: batch * given.length / median(some) for short, some in seconds.items()}
        rows.append(
            {
                "precision": name, "batch": batch, "beam": beam, "union": sentences.union,
                "tokens_per_second": round(speed[False]), "with_shortlist": round(speed[True]),
                "speedup": round(speed[True] / speed[False], 2),
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
    if given.out:
        result = {"preset": given.preset, "vocabulary": given.size, "length": given.length, "likely": given.likely,
                  "rounds": given.rounds, "rows": rows, "machine": machine()}  # fmt: skip
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

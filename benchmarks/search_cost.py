"""Measure what each option of search costs: sentences per CPU second, relative to plain beam search with the same model.

python benchmarks/search_cost.py --run RUN --texts SOURCE --out benchmarks/results/search-cost.json

Every option is timed once per round, in turn, with one thread; the result is the median of the rounds. Prefixes and phrases
are words of the plain outputs, so that the outputs stay about the same.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from machine import machine
from regard.config import SearchOptions
from regard.decoding.requests import Request
from regard.decoding.translator import Translator
from regard.loading import load_translator
from regard.run.finding import find_run
from regard.run.folder import SHORTLIST

BEAM = 4
PHRASE_LETTERS = 4
PLAIN = f"beam {BEAM}"
OPTIONS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "beam 1": {"beam": 1},
    "nbest 4": {"nbest": 4},
    "token_scores": {"token_scores": True},
    'early_stopping "never"': {"early_stopping": "never"},
    "early_stopping false": {"early_stopping": False},
    "no_repeat_ngram 3": {"no_repeat_ngram": 3},
    "max_repeats 2": {"max_repeats": 2},
    "4 groups, diversity_penalty 0.5": {"beam_groups": 4},
    "4 samples": {"sample": True},
    "4 samples, epsilon 0.02": {"sample": True, "epsilon": 0.02},
    "4 samples, top_p 0.9": {"sample": True, "top_p": 0.9},
    "shortlist 50": {"shortlist": 50},
}


def with_words(texts: list[str], outputs: list[str]) -> dict[str, list[Request]]:
    """Return requests for a prefix and for phrases: the first word, the longest one, and the two longest of each output."""
    longest = [
        sorted((word for word in output.split() if word.isalpha() and len(word) >= PHRASE_LETTERS), key=len)[::-1]
        for output in outputs
    ]
    return {
        "prefix of a word": [Request(text, output.split()[0]) for text, output in zip(texts, outputs, strict=True)],
        **{
            f"phrases: {count}": [Request(text, "", some[:count]) for text, some in zip(texts, longest, strict=True)]
            for count in (1, 2)
        },
    }


def seconds_of(translator: Translator, requests: list[Request], options: dict[str, Any]) -> float:
    began = time.process_time()
    for _ in translator.stream(requests, options=SearchOptions(**{"beam": BEAM, **options})):
        pass
    return time.process_time() - began


def main() -> None:
    """Measure the options of one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True)
    parser.add_argument("--texts", type=Path, required=True, help="compressed file of sources")
    parser.add_argument("--count", type=int, default=300, help="sentences")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    translator = load_translator(given.run, "translate", device="cpu", warn=lambda text: None)
    texts = gzip.decompress(given.texts.read_bytes()).decode().splitlines()[: given.count]
    plain = [Request(text) for text in texts]
    jobs = {name: (plain, options) for name, options in OPTIONS.items()}
    if find_run(given.run).read_extra(SHORTLIST) is None:
        jobs = {name: job for name, job in jobs.items() if "shortlist" not in name}
    # This also warms up.
    outputs = translator.translate(texts, options=SearchOptions(beam=BEAM))
    jobs |= {name: (requests, {}) for name, requests in with_words(texts, outputs).items()}
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(given.rounds):
        for name, job in jobs.items():
            seconds[name].append(seconds_of(translator, *job))
        print("round", number + 1, flush=True)
    middle = {name: median(some) for name, some in seconds.items()}
    rows = [
        {
            "name": name, "per_second": round(len(texts) / middle[name], 1),
            "relative": round(middle[PLAIN] / middle[name], 2), "seconds": [round(one, 2) for one in some],
        }
        for name, some in seconds.items()
    ]  # fmt: skip
    for row in rows:
        print(row)
    if given.out:
        result = {"sentences": len(texts), "rounds": given.rounds, "options": rows, "machine": machine()}
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

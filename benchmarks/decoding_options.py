"""Compare ways of choosing a translation among candidates: minimum Bayes risk, reverse reranking, coverage.

python benchmarks/decoding_options.py --data DATA --out benchmarks/results/decoding-options.json

DATA is the folder of Tatoeba's valid.en.gz, valid.de.gz, test.en.gz and test.de.gz. The models are those of the package. The
weight of the reverse model and beta of the coverage penalty are chosen by BLEU on the first sentences of the dev set, over
both directions. Every row is then compared with beam 4 on the first sentences of the test set by paired approximate
randomization (Riezler and Maxwell 2005). Exchanges that give exactly the observed difference count, which sacreBLEU's own
test leaves out: it calls two systems that differ in one sentence significantly different. Seconds are those of the CPU, for
search and choice together, with one thread per direction; other processes may run on the machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF

from machine import machine
from regard.config import SearchOptions
from regard.decoding.ranking import never_stop
from regard.decoding.requests import Request
from regard.decoding.reranking import CoverageScoring, Found, MinimumBayesRisk, ReverseScoring
from regard.decoding.translator import Translator
from regard.loading import load_translator

RUNS = {"en-de": ("en", "de"), "de-en": ("de", "en")}
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
BETAS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
BEAM = 16
EPSILON = 0.02
TRIALS = 5_000

Scores = list[list[float]]


def read(folder: Path, name: str, count: int) -> list[str]:
    """Return the first lines of a compressed file."""
    with gzip.open(folder / f"{name}.gz", "rt", encoding="utf-8") as lines:
        return [line.rstrip("\n") for line, _ in zip(lines, range(count), strict=False)]


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    return work(), time.process_time() - began


def search(translator: Translator, texts: Sequence[str], options: SearchOptions) -> tuple[list[Found], float]:
    """Return the `beam` candidates of each text, and the CPU seconds."""
    options = translator.options.with_given(options).replace(nbest=options.beam)
    requests = [Request(text) for text in texts]
    found, seconds = timed(
        lambda: [one for some in translator._search(requests, 1, options, never_stop) for one in some]
    )
    return sorted(found, key=lambda one: one.number), seconds


def nested(found: Sequence[Found], scores: Sequence[float]) -> Scores:
    rest = iter(scores)
    return [[next(rest) for _ in one.translations] for one in found]


def own(found: Sequence[Found]) -> Scores:
    return [[each.score for each in one.translations] for one in found]


def added(first: Scores, weight: float, second: Scores) -> Scores:
    pairs = zip(first, second, strict=True)
    return [[a + weight * b for a, b in zip(one, other, strict=True)] for one, other in pairs]


def chosen(found: Sequence[Found], scores: Scores) -> list[str]:
    """Return the translation of each text that scores best; of equal ones the first."""
    return [
        one.translations[max(range(len(some)), key=lambda place: (some[place], -place))].text
        for one, some in zip(found, scores, strict=True)
    ]


def parts(translator: Translator, found: list[Found]) -> dict[str, tuple[Scores, float]]:
    """Return what the reverse model and the coverage penalty add to each candidate, at a weight of one, and the seconds."""
    score_pairs = translator._scores_by(translator.reverse, translator.options)
    assert score_pairs is not None
    before = own(found)
    stages = {
        "reverse": ReverseScoring(score_pairs, 1.0),
        "coverage": CoverageScoring(translator.model, translator.options.replace(coverage_penalty=1.0), 0),
    }
    result = {}
    for name, stage in stages.items():
        scores, seconds = timed(lambda stage=stage: list(stage.scores(found)))
        result[name] = added(nested(found, scores), -1.0, before), seconds
    return result


def load(run: str) -> Translator:
    """Return the translator of a run, with that of the other direction as its reverse model."""
    torch.set_num_threads(1)
    (opposite,) = RUNS.keys() - {run}
    return load_translator(run, "translate", device="cpu", reverse=opposite, warn=lambda text: None)


def measure_dev(run: str, data: Path, count: int) -> dict[str, dict[str, float]]:
    """Return BLEU on the dev set for each weight and beta."""
    translator, (source, target) = load(run), RUNS[run]
    texts, references = read(data, f"valid.{source}", count), read(data, f"valid.{target}", count)
    found, _ = search(translator, texts, SearchOptions(beam=BEAM))
    both = parts(translator, found)
    result: dict[str, dict[str, float]] = {}
    for name, part, grid in (("reverse_weight", "reverse", WEIGHTS), ("coverage_penalty", "coverage", BETAS)):
        for weight in grid:
            outputs = chosen(found, added(own(found), weight, both[part][0]))
            bleu = BLEU().corpus_score(outputs, [references]).score
            result.setdefault(name, {})[str(weight)] = round(bleu, 2)
    return result


def best_of(name: str, dev: dict[str, dict[str, dict[str, float]]], grid: Sequence[float]) -> float:
    """Return the value above zero with the largest sum over the directions; of equal ones the smallest."""
    return max(grid[1:], key=lambda value: (sum(dev[run][name][str(value)] for run in RUNS), -value))


def measure_test(run: str, data: Path, count: int, weight: float, beta: float) -> list[dict[str, Any]]:
    """Return the table of one direction."""
    translator, (source, target) = load(run), RUNS[run]
    texts, references = read(data, f"test.{source}", count), read(data, f"test.{target}", count)
    rows: dict[str, tuple[list[str], float]] = {}
    found, seconds = search(translator, texts, SearchOptions(beam=4))
    rows["beam 4"] = chosen(found, own(found)), seconds
    beams, seconds = search(translator, texts, SearchOptions(beam=BEAM))
    rows[f"beam {BEAM}"] = chosen(beams, own(beams)), seconds
    both = parts(translator, beams)
    (reverse, reverse_seconds), (coverage, coverage_seconds) = both["reverse"], both["coverage"]
    by_reverse, by_coverage = added(own(beams), weight, reverse), added(own(beams), beta, coverage)
    rows[f"reverse model, beam {BEAM}"] = chosen(beams, by_reverse), seconds + reverse_seconds
    rows[f"coverage penalty, beam {BEAM}"] = chosen(beams, by_coverage), seconds + coverage_seconds
    rows[f"reverse model and coverage, beam {BEAM}"] = (
        chosen(beams, added(by_reverse, beta, coverage)),
        seconds + reverse_seconds + coverage_seconds,
    )
    pools = {f"beam {BEAM}": (beams, seconds)}
    for count in (16, 64):
        options = SearchOptions(beam=count, sample=True, epsilon=EPSILON)
        pools[f"{count} samples"] = search(translator, texts, options)
    for pool, (candidates, seconds) in pools.items():
        for metric, label in (("chrf", "chrF"), ("bleu", "BLEU")):
            scores, more = timed(lambda m=metric, c=candidates: list(MinimumBayesRisk(m).scores(c)))
            rows[f"MBR by {label}, {pool}"] = chosen(candidates, nested(candidates, scores)), seconds + more
    return compare(rows, references)


def compare(rows: dict[str, tuple[list[str], float]], references: list[str]) -> list[dict[str, Any]]:
    """Return BLEU, chrF and their p-values against the first row, and how many of its outputs differ."""
    baseline, _ = next(iter(rows.values()))
    metrics = {"BLEU": BLEU(references=[references]), "chrF": CHRF(references=[references])}
    table = []
    for name, (outputs, seconds) in rows.items():
        differ = [place for place, output in enumerate(outputs) if output != baseline[place]]
        row: dict[str, Any] = {
            "name": name, "seconds": round(seconds, 1), "per_second": round(len(outputs) / seconds, 1),
            "differ": len(differ),
        }  # fmt: skip
        for label, metric in metrics.items():
            first, second = (np.array(metric._extract_corpus_statistics(one, None)) for one in (baseline, outputs))
            row[label] = round(metric._compute_score_from_stats(second.sum(axis=0).tolist()).score, 2)
            row[f"p_{label}"] = round(randomization_p(metric, first, second), 4) if differ else None
        table.append(row)
    return table


def randomization_p(metric: Any, first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """Return the share of random exchanges of outputs with at least the observed difference, the observed one included."""

    def difference(exchanged: NDArray[np.bool_]) -> float:
        moved = (second - first)[exchanged].sum(axis=0)
        sums = (first.sum(axis=0) + moved).tolist(), (second.sum(axis=0) - moved).tolist()
        one, other = (metric._compute_score_from_stats(each).score for each in sums)
        return abs(one - other)

    draws = np.random.default_rng(12345).integers(2, size=(TRIALS, len(first)), dtype=bool)
    observed = difference(np.zeros(len(first), dtype=bool))
    # The margin is for the rounding of equal differences.
    return (sum(difference(draw) >= observed - 1e-9 for draw in draws) + 1) / (TRIALS + 1)


def earlier_dev(out: Path | None, count: int) -> dict[str, dict[str, dict[str, float]]] | None:
    """Return the dev scores in the results of an earlier call, if they are of as many sentences."""
    if out is None or not out.exists():
        return None
    before = json.loads(out.read_text(encoding="utf-8"))
    return before["dev_bleu"] if before["dev_sentences"] == count else None


def main() -> None:
    """Measure both models of the package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dev", type=int, default=200, help="sentences of the dev set")
    parser.add_argument("--count", type=int, default=500, help="sentences of the test set")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with ProcessPoolExecutor(len(RUNS), get_context("spawn")) as pool:
        dev = earlier_dev(given.out, given.dev)
        if dev is None:
            dev = dict(zip(RUNS, pool.map(partial(measure_dev, data=given.data, count=given.dev), RUNS), strict=True))
        weight = best_of("reverse_weight", dev, WEIGHTS)
        beta = best_of("coverage_penalty", dev, BETAS)
        print(dev, weight, beta, flush=True)
        measure = partial(measure_test, data=given.data, count=given.count, weight=weight, beta=beta)
        test = dict(zip(RUNS, pool.map(measure, RUNS), strict=True))
    for run, table in test.items():
        for row in table:
            print(run, row)
    result = {
        "dev_sentences": given.dev, "dev_bleu": dev, "reverse_weight": weight, "coverage_penalty": beta,
        "epsilon": EPSILON, "test_sentences": given.count, "test": test, "machine": machine(),
    }  # fmt: skip
    if given.out:
        given.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

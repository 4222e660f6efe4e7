"""Measure what the options of search are worth in one direction: BLEU, chrF, and sentences per CPU second.

python benchmarks/decoding_options.py --run RUN --ensemble RUN2 RUN3 --reverse RUN4 --dev SOURCE TARGET \
    --test SOURCE TARGET --train SOURCE TARGET --out benchmarks/results/decoding-options.json
python benchmarks/decoding_options.py --run en-de --reverse de-en --dev valid.en.gz valid.de.gz --test test.en.gz test.de.gz

--dev, --test and --train may be given several times. Without --ensemble, --reverse, --dev or --train, and for a run without
shortlist.json, the rows that need them are left out. The weight of the reverse model and beta of the coverage penalty are
chosen by BLEU on the first sentences of the dev set.

Every row is compared with plain beam search by paired approximate randomization (Riezler and Maxwell 2005). Exchanges that
give exactly the observed difference count, which sacreBLEU's own test leaves out: it calls two systems that differ in one
sentence significantly different. Seconds are those of the CPU, for search and choice together, with one thread.

Terms of the rows with phrases and a glossary are words of the references, so these rows know a part of the answer. A term is
a rare word with a one-to-one link to a rare source word (`regard.aligning`); a sentence has the two rarest pairs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF

from machine import machine
from regard.aligning import align
from regard.config import SearchOptions
from regard.decoding.hypothesis import never_stop
from regard.decoding.requests import Request
from regard.decoding.reranking import CoverageScoring, Found, MinimumBayesRisk, ReverseScoring, ScorePairs, Stage
from regard.decoding.translator import Translator
from regard.errors import DecodeError
from regard.loading import load_translator
from regard.text.glossary import make_glossary

WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
BETAS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
BEAM, POOL = 4, 16  # of plain search, and of the hypotheses that are chosen among
EPSILON = 0.02
SHORTLISTS = (50, 100)
TERM_LETTERS, TERM_EVERY, MOST_TERMS = 5, 500, 2  # least letters; rarer than one in so many sentences; of a sentence
TRIALS = 5_000

Scores = list[list[float]]
Pairs = list[tuple[str, str]]
Terms = list[list[tuple[str, str]]]  # the terms of each sentence: source word, target word


class Row(NamedTuple):
    """What an option gives."""

    outputs: list[str]
    seconds: float


def read(files: Sequence[tuple[str, str]], count: int | None = None) -> Pairs:
    """Return the first pairs of compressed files."""
    pairs: Pairs = []
    for names in files:
        source, target = (gzip.decompress(Path(name).read_bytes()).decode().splitlines() for name in names)
        pairs += zip(source, target, strict=True)
    return pairs[:count]


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    return work(), time.process_time() - began


def translate(translator: Translator, requests: Sequence[Request | str], **options: Any) -> Row:
    return Row(*timed(lambda: translator.translate(requests, options=SearchOptions(**options))))


def candidates(translator: Translator, texts: Sequence[str], **options: Any) -> tuple[list[Found], float]:
    """Return POOL candidates for each text, and the CPU seconds."""
    chosen = translator.options.with_given(SearchOptions(beam=POOL, nbest=POOL, **options))
    requests = [Request(text) for text in texts]
    found, seconds = timed(
        lambda: [one for some in translator._search(requests, 1, chosen, never_stop) for one in some]
    )
    return sorted(found, key=lambda one: one.number), seconds


def own(found: Sequence[Found]) -> Scores:
    return [[each.score for each in one.translations] for one in found]


def scored(stage: Stage, found: list[Found]) -> tuple[Scores, float]:
    """Return the scores that a stage gives the candidates of each text, and the CPU seconds."""
    scores, seconds = timed(lambda: iter(list(stage.scores(found))))
    return [[next(scores) for _ in one.translations] for one in found], seconds


def mixed(first: Scores, weight: float, second: Scores) -> Scores:
    """Return the first scores, moved towards the second by a weight; with weight 1 the second."""
    pairs = zip(first, second, strict=True)
    return [[a + weight * (b - a) for a, b in zip(one, other, strict=True)] for one, other in pairs]


def best(found: Sequence[Found], scores: Scores) -> list[str]:
    """Return the translation of each text that scores best; of equal ones the first."""
    return [
        one.translations[max(range(len(some)), key=lambda place: (some[place], -place))].text
        for one, some in zip(found, scores, strict=True)
    ]


def stages(translator: Translator, reverse: ScorePairs | None) -> Iterator[tuple[str, str, Sequence[float], Stage]]:
    """Yield the stages that have a weight, at a weight of one: name of the row, option, its values, stage."""
    if reverse is not None:
        yield "reverse model", "reverse_weight", WEIGHTS, ReverseScoring(reverse, 1.0)
    options = translator.options.replace(coverage_penalty=1.0)
    yield "coverage penalty", "coverage_penalty", BETAS, CoverageScoring(translator.model, options, 0)


def dev_scores(translator: Translator, reverse: ScorePairs | None, pairs: Pairs) -> dict[str, dict[float, float]]:
    """Return BLEU on the dev set for each value of reverse_weight and coverage_penalty."""
    found, _ = candidates(translator, [source for source, _ in pairs])
    result: dict[str, dict[float, float]] = {}
    for _, option, values, stage in stages(translator, reverse):
        scores, _ = scored(stage, found)
        outputs = {value: best(found, mixed(own(found), value, scores)) for value in values}
        references = [[target for _, target in pairs]]
        result[option] = {
            value: round(BLEU().corpus_score(some, references).score, 2) for value, some in outputs.items()
        }
    return result


def find_terms(translator: Translator, train: Pairs, test: Pairs) -> Terms:
    """Return the terms of each test pair: rare words of the reference, each with the rare word that it translates."""
    aligned = align([*train, *test], method="intersection")
    counts = [
        Counter(word for one in aligned[: len(train)] for word in {word.lower() for word in one[side]})
        for side in (0, 1)
    ]
    result: Terms = []
    for source, target, links in aligned[len(train) :]:
        found = []
        for s, t in links:
            words = source[s], target[t]
            often = [count[word.lower()] for count, word in zip(counts, words, strict=True)]
            # The first word of a sentence may have its capital letter for that reason alone.
            if t and all(len(word) >= TERM_LETTERS and word.isalpha() for word in words):
                with suppress(DecodeError):  # what the vocabulary does not have
                    translator.refuse(Request("", phrases=[target[t]]), SearchOptions(beam=BEAM))
                    found.append((max(often), words))
        rare = [words for count, words in sorted(found) if count * TERM_EVERY < len(train)]
        result.append(rare[:MOST_TERMS])
    return result


def choices(
    translator: Translator, reverse: ScorePairs | None, values: dict[str, float], texts: list[str]
) -> Iterator[tuple[str, Row]]:
    """Yield the rows that choose among candidates."""
    found, seconds = candidates(translator, texts)
    yield f"beam {POOL}", Row(best(found, own(found)), seconds)
    for name, option, _, stage in stages(translator, reverse):
        scores, more = scored(stage, found)
        yield f"{name}, beam {POOL}", Row(best(found, mixed(own(found), values[option], scores)), seconds + more)
    scores, more = scored(MinimumBayesRisk("chrf"), found)
    yield f"MBR by chrF, beam {POOL}", Row(best(found, scores), seconds + more)
    found, seconds = candidates(translator, texts, sample=True, epsilon=EPSILON)
    scores, more = scored(MinimumBayesRisk("chrf"), found)
    yield f"MBR by chrF, {POOL} samples", Row(best(found, scores), seconds + more)


def shortlists(translator: Translator, texts: list[str]) -> Iterator[tuple[str, Row]]:
    with suppress(DecodeError):  # the run has no shortlist
        for most in SHORTLISTS:
            yield f"shortlist {most}, beam {BEAM}", translate(translator, texts, beam=BEAM, shortlist=most)


def with_terms(translator: Translator, texts: list[str], terms: Terms) -> Iterator[tuple[str, Row]]:
    """Yield a row in which each sentence has its own terms, and one with a glossary of all of them."""
    demands = [Request(text, phrases=[word for _, word in some]) for text, some in zip(texts, terms, strict=True)]
    yield f"terms as phrases, beam {BEAM}", translate(translator, demands, beam=BEAM)
    glossary = make_glossary(pair for some in terms for pair in some)
    yield f"terms as a glossary, beam {BEAM}", translate(translator.with_glossary(glossary), texts, beam=BEAM)


def compare(rows: dict[str, Row], references: list[str], terms: Terms | None) -> list[dict[str, Any]]:
    """Return BLEU, chrF and their p-values against the first row, and how many of its outputs differ."""
    baseline = next(iter(rows.values())).outputs
    metrics = {"BLEU": BLEU(references=[references]), "chrF": CHRF(references=[references])}
    table = []
    for name, (outputs, seconds) in rows.items():
        differ = sum(one != other for one, other in zip(outputs, baseline, strict=True))
        row: dict[str, Any] = {"name": name, "per_second": round(len(outputs) / seconds, 1), "differ": differ}
        for label, metric in metrics.items():
            first, second = (np.array(metric._extract_corpus_statistics(one, None)) for one in (baseline, outputs))
            row[label] = round(metric._compute_score_from_stats(second.sum(axis=0).tolist()).score, 2)
            row[f"p_{label}"] = round(randomization_p(metric, first, second), 4) if differ else None
        if terms is not None:
            there = [has(output, word) for output, some in zip(outputs, terms, strict=True) for _, word in some]
            row["terms_found"] = round(sum(there) / max(1, len(there)), 4)
        table.append(row)
    return table


def has(text: str, word: str) -> bool:
    """Whether a text has a word, as a whole word."""
    return re.search(rf"\b{re.escape(word)}\b", text) is not None


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


def main() -> None:
    """Measure one direction."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True)
    parser.add_argument("--ensemble", nargs="+", default=[], help="runs that share its vocabulary")
    parser.add_argument("--reverse", help="run of the opposite direction")
    for name in ("dev", "test", "train"):
        files = ("SOURCE", "TARGET")
        parser.add_argument(f"--{name}", nargs=2, metavar=files, action="append", required=name == "test")
    parser.add_argument("--dev-count", type=int, default=500, help="sentences of the dev set")
    parser.add_argument("--count", type=int, help="sentences of the test set; default: all")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)

    def load(**more: Any) -> Translator:
        return load_translator(given.run, "translate", device="cpu", warn=lambda text: None, **more)

    translator = load(reverse=given.reverse)
    reverse, translator.reverse = Translator._scores_by(translator.reverse, translator.options), None
    test = read(given.test, given.count)
    texts, references = [source for source, _ in test], [target for _, target in test]
    result: dict[str, Any] = {"test_sentences": len(test)}
    rows = {f"beam {BEAM}": translate(translator, texts, beam=BEAM)}
    terms = None
    if given.ensemble:
        name = f"ensemble of {len(given.ensemble) + 1}, beam {BEAM}"
        rows[name] = translate(load(ensemble=given.ensemble), texts, beam=BEAM)
    if given.dev:
        pairs = read(given.dev, given.dev_count)
        dev = dev_scores(translator, reverse, pairs)
        # The best value above zero; of equal ones the smallest.
        values = {option: max(list(some)[1:], key=lambda value: (some[value], -value)) for option, some in dev.items()}
        result |= {"dev_sentences": len(pairs), "dev_bleu": dev, **values, "epsilon": EPSILON}
        rows |= choices(translator, reverse, values, texts)
    rows |= shortlists(translator, texts)
    if given.train:
        terms = find_terms(translator, read(given.train), test)
        result |= {"terms": sum(map(len, terms)), "sentences_with_terms": sum(map(bool, terms))}
        rows |= with_terms(translator, texts, terms)
    result |= {"test": compare(rows, references, terms), "machine": machine()}
    for line in result["test"]:
        print(line)
    if given.out:
        given.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

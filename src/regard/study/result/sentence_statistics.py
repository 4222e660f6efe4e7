"""Statistics of every sentence of an output: counts whose sums give the score of a test set, or of any part of it.

They make the test over sentences possible without the references, which are not ours to give away.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from regard.config import EvaluateConfig
from regard.errors import DataError
from regard.messages import counted
from regard.metrics.corpus_metrics import CorpusMetric, Statistics, bleu_metric, chrf_metric, exact_match_metric
from regard.metrics.text import edit_distance
from regard.study.cells import slug

MAX_BYTES = 2**26  # of an unpacked file
MAX_BYTES_TOGETHER = 2**29  # of all that are unpacked for one check
NEAR = 1e-9  # relative difference of two scores that are the same but for rounding
STATISTICS = "statistics"  # the folder of a cell that keeps them
StatisticsKey = tuple[str, int, str]  # the row, the seed and the test set of an output
ReferenceLists = Sequence[Sequence[str]]  # each list has one reference of every sentence


def _token_error_metric(references: ReferenceLists, config: EvaluateConfig) -> CorpusMetric:
    def statistics(outputs: Sequence[str]) -> Statistics:
        pairs = [(output.split(), reference.split()) for output, reference in zip(outputs, references[0], strict=True)]
        return np.array([[edit_distance(output, reference), len(reference)] for output, reference in pairs])

    return CorpusMetric(
        "token_errors",
        higher_is_better=False,
        decimals=2,
        statistics=statistics,
        score_of_sums=lambda sums: 100 * sums[0] / max(sums[1], 1),
        scores_of_sums=lambda sums: 100 * sums[..., 0] / np.maximum(sums[..., 1], 1),
        signature=lambda **tested: "Levenshtein over tokens split at spaces",
        length=1,
    )


# Of text. Other metrics are tested over seeds alone.
SENTENCE_METRICS: dict[str, Callable[[ReferenceLists, EvaluateConfig], CorpusMetric]] = {
    "bleu": bleu_metric,
    "chrf": chrf_metric,
    "exact": lambda references, config: exact_match_metric(references),
    "token_errors": _token_error_metric,
}


# Numbers per sentence: matches and n-grams of 4 orders and 2 lengths; 3 counts of 6 orders.
WIDTHS = {"bleu": 10, "chrf": 18, "exact": 2, "token_errors": 2}


def sentence_metric(
    name: str, references: ReferenceLists = ((),), config: EvaluateConfig | None = None
) -> CorpusMetric | None:
    """Return the metric as sums over sentences; None if it is no such metric. Sums need no references to be scored."""
    make = SENTENCE_METRICS.get(name)
    return None if make is None else make(references, EvaluateConfig() if config is None else config)


def same_score(one: float | None, other: float | None) -> bool:
    """Return whether two scores are the same but for rounding."""
    if one is None or other is None:
        return one is other
    return abs(one - other) <= NEAR * max(1.0, abs(one), abs(other))


# Files: one line per sentence, compressed


def statistics_name(test: str, metric: str) -> str:
    """Return the name of the file with the statistics of a test set."""
    return f"{slug(test)}.{metric}.tsv.gz"


def pack(text: str) -> bytes:
    """Return text compressed, the same bytes whenever it is written."""
    return gzip.compress(text.encode(), mtime=0)


def unpack(content: bytes, *, origin: object, most: int = MAX_BYTES) -> str:
    """Return compressed text. Raise DataError if it is damaged, or larger than it may be."""
    inflating = zlib.decompressobj(wbits=31)
    try:
        # 0 would be no limit.
        text = inflating.decompress(content, max(1, min(most, MAX_BYTES)))
        if not inflating.eof or inflating.unused_data:
            raise DataError(f"{origin} is damaged: it is cut, too long, or has more after its end")
        return text.decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{origin} is damaged: {error}") from error


def statistics_text(statistics: Statistics) -> str:
    """Return the statistics of each sentence as a line of numbers."""
    rows = statistics.tolist()
    return "".join("\t".join(map(_number, row)) + "\n" for row in rows)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def parse_statistics(text: str, metric: str, *, sentences: int, origin: object) -> Statistics:
    """Return the statistics in a text. Raise DataError unless it has as many counts per sentence as the metric."""
    wrong = DataError(f"{origin} is damaged: it must have {counted(sentences, 'line')} of {WIDTHS[metric]} counts")
    lines = text.splitlines()
    if len(lines) != sentences:  # before memory for so many is taken
        raise wrong
    found = np.empty((sentences, WIDTHS[metric]))
    try:
        for number, line in enumerate(lines):
            counts = line.split("\t")
            if len(counts) != WIDTHS[metric]:
                raise wrong
            found[number] = [float(count) for count in counts]
    except ValueError as error:
        raise DataError(f"{origin} is damaged: {error}") from error
    if not np.isfinite(found).all() or (found < 0).any():
        raise wrong
    return found

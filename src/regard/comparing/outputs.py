"""Outputs of several systems for one test set: scores with intervals and paired tests, scores by length and by frequency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regard.comparing.sentences import Changes, find_changes
from regard.comparing.word_frequency import ByFrequency, TrainingWords, scores_by_frequency
from regard.metrics.corpus_metrics import CorpusMetric, Statistics
from regard.metrics.significance import ALPHA, PairedResult, Sampling, bootstrap_scores, interval, paired_result

GROUPS = 5  # of sentences by length
LEAST = 10  # sentences per group
LONG_WORD = 20  # mean characters per word from which on a text is taken to be written without spaces


@dataclass(frozen=True)
class SystemScore:
    """A system's score, its bootstrap interval, and how it differs from the baseline, which is compared with nothing."""

    system: str
    score: float
    mean: float  # of resampled test sets
    ci: float  # 95 % of them are about so near to the mean
    paired: PairedResult | None


@dataclass(frozen=True)
class MetricComparison:
    """The scores of all systems by one metric, the baseline first."""

    metric: str
    higher_is_better: bool
    decimals: int
    signature: str
    systems: list[SystemScore]

    def verdict(self, paired: PairedResult) -> str:
        """Return "better" or "worse" if both tests find a significant difference, "unclear" if one does, else "same"."""
        tests = [p < ALPHA for p in (paired.p_bootstrap, paired.p_randomization)]
        if not any(tests):
            return "same"
        if not all(tests):
            return "unclear"
        return "better" if (paired.change > 0) == self.higher_is_better else "worse"


@dataclass(frozen=True)
class LengthGroup:
    """The scores of the sentences whose length is in a range."""

    shortest: int
    longest: int
    num_sentences: int
    scores: dict[str, list[float]]  # by metric, in the order of the systems


@dataclass(frozen=True)
class ByLength:
    """Scores by the length of the sources, or of the references if there are no sources."""

    side: str
    unit: str  # words, or characters of a text without spaces
    groups: list[LengthGroup]


@dataclass(frozen=True)
class ComparedSet:
    """All that is compared on one test set."""

    name: str
    num_sentences: int
    num_references: int
    metrics: list[MetricComparison]
    by_length: ByLength
    by_frequency: ByFrequency | None  # if a training text was given
    changes: dict[str, Changes]  # by system, without the baseline


def compare_outputs(
    name: str,
    outputs: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    metrics: Sequence[CorpusMetric],
    *,
    sources: Sequence[str] | None,
    sampling: Sampling,
    most_sentences: int,
    training: TrainingWords | None = None,
) -> ComparedSet:
    """Compare the outputs of systems, of which the first is the baseline.

    Each list in `references` has one reference of every sentence. chrF must be among the metrics: changed sentences are
    found by it.
    """
    names, baseline = list(outputs), next(iter(outputs))
    counted = {metric.name: [metric.statistics(outputs[one]) for one in names] for metric in metrics}
    [chrf] = [metric for metric in metrics if metric.name == "chrF"]
    before = (outputs[baseline], counted["chrF"][0])
    return ComparedSet(
        name,
        len(references[0]),
        len(references),
        [_compare_scores(metric, names, counted[metric.name], sampling) for metric in metrics],
        scores_by_length(metrics, counted, references[0], sources),
        None if training is None else scores_by_frequency(list(outputs.values()), references[0], training),
        {
            one: find_changes(chrf, before, (outputs[one], statistics), references, sources, most=most_sentences)
            for one, statistics in zip(names[1:], counted["chrF"][1:], strict=True)
        },
    )


def _compare_scores(
    metric: CorpusMetric, names: Sequence[str], counted: Sequence[Statistics], sampling: Sampling
) -> MetricComparison:
    resampled = [bootstrap_scores(metric, statistics, sampling) for statistics in counted]
    scores = []
    for number, (name, statistics) in enumerate(zip(names, counted, strict=True)):
        found = interval(resampled[number])
        pair = (resampled[0], resampled[number])
        paired = paired_result(metric, counted[0], statistics, pair, sampling) if number else None
        scores.append(SystemScore(name, metric.score(statistics), found.mean, found.ci, paired))
    signature = metric.signature(bs=sampling.resamples, ar=sampling.trials, seed=sampling.seed)
    return MetricComparison(metric.name, metric.higher_is_better, metric.decimals, signature, scores)


def scores_by_length(
    metrics: Sequence[CorpusMetric],
    counted: Mapping[str, Sequence[Statistics]],
    references: Sequence[str],
    sources: Sequence[str] | None,
) -> ByLength:
    """Return the scores of groups of sentences of similar length. `counted` has the statistics of the systems by metric."""
    texts = references if sources is None else sources
    unit = "characters" if sum(map(len, texts)) > LONG_WORD * sum(len(text.split()) for text in texts) else "words"
    lengths = np.array([len(text) if unit == "characters" else len(text.split()) for text in texts])
    groups = []
    for shortest, longest in length_ranges(lengths.tolist()):
        rows = np.flatnonzero((lengths >= shortest) & (lengths <= longest))
        scores = {metric.name: [metric.score(one[rows]) for one in counted[metric.name]] for metric in metrics}
        groups.append(LengthGroup(shortest, longest, len(rows), scores))
    return ByLength("reference" if sources is None else "source", unit, groups)


def length_ranges(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Return ranges of lengths, first and last included, that hold about equally many sentences each."""
    ordered = sorted(lengths)
    number = max(1, min(GROUPS, len(ordered) // LEAST))
    # The longest of each group, without those that several groups would share.
    ends = sorted({ordered[len(ordered) * (group + 1) // number - 1] for group in range(number)})
    begins = [ordered[0], *(next(one for one in ordered if one > end) for end in ends[:-1])]
    return list(zip(begins, ends, strict=True))

"""The result of a comparison, and its words: what pages and tables share."""

from __future__ import annotations

from dataclasses import dataclass

from regard.comparing.outputs import ByLength, ComparedSet, MetricComparison, SystemScore
from regard.comparing.word_frequency import ByFrequency, FrequencyGroup
from regard.messages import counted
from regard.metrics.significance import ALPHA, Sampling

VERDICTS = {
    "better": "significantly better",
    "worse": "significantly worse",
    "unclear": "different according to only one of the tests",
    "same": "not significantly different",
}


@dataclass(frozen=True)
class ComparedSystem:
    """A system of a comparison."""

    name: str
    path: str
    search: str | None  # how a run found its outputs; None for a file


@dataclass(frozen=True)
class Compared:
    """Systems compared on test sets. The first system is the baseline."""

    systems: list[ComparedSystem]
    sampling: Sampling
    sets: list[ComparedSet]

    @property
    def baseline(self) -> str:
        """The name of the first system."""
        return self.systems[0].name


def verdicts(compared: ComparedSet, system: str) -> str:
    """Return in a sentence by which metrics a system differs from the baseline."""
    found: dict[str, list[str]] = {}
    for metric in compared.metrics:
        [score] = [one for one in metric.systems if one.system == system]
        assert score.paired is not None, "the baseline is not compared with itself"
        found.setdefault(metric.verdict(score.paired), []).append(metric.metric)
    parts = [f"{text} by {_listed(found[verdict])}" for verdict, text in VERDICTS.items() if verdict in found]
    return f"{system} is {', '.join(parts)}."


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


HEAD = ["system", "score", "95 % interval", "change", "95 % interval", "p, bootstrap", "p, randomization"]


def score_row(metric: MetricComparison, one: SystemScore) -> list[str]:
    """Return the cells of a table with the columns of HEAD."""
    digits = metric.decimals
    cells = [one.system, f"{one.score:.{digits}f}", f"{one.mean:.{digits}f} ± {one.ci:.{digits}f}"]
    if one.paired is None:
        return [*cells, "", "", "", ""]
    paired = one.paired
    bounds = f"{paired.low:+.{digits}f} to {paired.high:+.{digits}f}"
    return [
        *cells,
        f"{paired.change:+.{digits}f}",
        bounds,
        f"{paired.p_bootstrap:.4f}",
        f"{paired.p_randomization:.4f}",
    ]


def describe_metric(metric: MetricComparison) -> str:
    """Return the name of a metric, and that lower is better if it is."""
    return metric.metric if metric.higher_is_better else f"{metric.metric} (lower is better)"


def describe_range(shortest: int, longest: int) -> str:
    """Return the lengths in a group."""
    return f"{shortest}" if shortest == longest else f"{shortest} to {longest}"


def describe_lengths(by_length: ByLength) -> str:
    """Return what lengths are counted in."""
    return f"{by_length.unit} of the {by_length.side}"


def frequency_rows(by_frequency: ByFrequency, systems: list[str]) -> list[list[str]]:
    """Return the cells of a table: its head, then a row per group and system."""
    rows = [[f"times in {by_frequency.training}", "words", "system", "recall", "F1"]]
    for group in by_frequency.groups:
        names = [_describe_times(group), f"{group.num_words:,}"]
        rows += [
            [*names, system, f"{recall:.1f}", f"{f1:.1f}"]
            for system, recall, f1 in zip(systems, group.recall, group.f1, strict=True)
        ]
    return rows


def _describe_times(group: FrequencyGroup) -> str:
    if group.most is None:
        return f"{group.least:,} or more"
    return f"{group.least}" if group.least == group.most else f"{group.least} to {group.most}"


def describe_set(compared: ComparedSet) -> str:
    """Return the sizes of a test set."""
    return f"{counted(compared.num_sentences, 'sentence')}, {counted(compared.num_references, 'reference')}"


def explain_tests(comparison: Compared) -> str:
    """Return in a few sentences how the intervals and the p-values were found."""
    sampling = comparison.sampling
    return (
        f"Changes and p-values are against {comparison.baseline}. Intervals and the first p-value: paired bootstrap, "
        f"{sampling.resamples:,} resamples; second p-value: approximate randomization, {sampling.trials:,} trials; seed "
        f"{sampling.seed}. A difference is called significant if both p-values are below {ALPHA:g}."
    )

"""How well words are translated by how often they occur in the training text, as compare-mt does (Neubig et al. 2019)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.config import EvaluateConfig
from regard.metrics.corpus_metrics import make_bleu
from regard.text.lines import stream_lines

BOUNDS = (0, 1, 10, 100, 1000)  # the least occurrences of the words of each group


@dataclass(frozen=True)
class TrainingWords:
    """How often each word occurs in the training text, and how text is split into words."""

    name: str
    split: Callable[[str], list[str]]
    counts: Mapping[str, int]


@dataclass(frozen=True)
class FrequencyGroup:
    """How well the words are translated that occur so often in the training text."""

    least: int
    most: int | None  # None: no limit
    num_words: int  # of the references
    recall: list[float]  # percent of the words of the references that are in the outputs, in the order of the systems
    f1: list[float]  # percent; with precision, which also counts words that should not have been output


@dataclass(frozen=True)
class ByFrequency:
    """Words by their frequency in a training text."""

    training: str
    groups: list[FrequencyGroup]


def count_words(path: Path, config: EvaluateConfig) -> TrainingWords:
    """Return how often each word occurs in a text, split into words as BLEU does."""
    tokenize = make_bleu(config).tokenizer

    def split(text: str) -> list[str]:
        words: str = tokenize(text.lower() if config.lowercase else text)
        return words.split()

    counts: Counter[str] = Counter()
    for line in stream_lines(path):
        counts.update(split(line))
    return TrainingWords(path.name, split, counts)


def scores_by_frequency(
    outputs: Sequence[Sequence[str]], references: Sequence[str], training: TrainingWords
) -> ByFrequency:
    """Return recall and F1 of the words of each group, for the outputs of each system; groups without words are left out.

    A word of an output is right if the reference of its sentence has it too, at most as often as it is there, at any place.
    """
    wanted = [Counter(training.split(text)) for text in references]
    right: list[list[int]] = []
    given: list[list[int]] = []
    for texts in outputs:
        found = [Counter(training.split(text)) for text in texts]
        given.append(_by_group(found, training))
        right.append(_by_group([one & other for one, other in zip(found, wanted, strict=True)], training))
    groups = []
    for group, expected in enumerate(_by_group(wanted, training)):
        if expected:
            scores = [(right[system][group], given[system][group]) for system in range(len(outputs))]
            groups.append(
                FrequencyGroup(
                    BOUNDS[group],
                    BOUNDS[group + 1] - 1 if group + 1 < len(BOUNDS) else None,
                    expected,
                    [100 * hits / expected for hits, _ in scores],
                    [100 * 2 * hits / (expected + output) for hits, output in scores],
                )
            )
    return ByFrequency(training.name, groups)


def _by_group(sentences: Sequence[Counter[str]], training: TrainingWords) -> list[int]:
    """Return the number of words in each group."""
    sums = [0] * len(BOUNDS)
    for sentence in sentences:
        for word, number in sentence.items():
            sums[sum(bound <= training.counts.get(word, 0) for bound in BOUNDS) - 1] += number
    return sums

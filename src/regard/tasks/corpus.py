"""The examples that a recipe names: pairs of an input line and an output line, in memory or as a store of ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, Protocol

from regard.config import Bitext, DataConfig, Recipe
from regard.errors import ConfigError, DataError
from regard.messages import counted
from regard.text.bitext import load_bitext, new_report, pairs_fingerprint
from regard.text.decontamination import decontaminated
from regard.text.generators import generate, refuse_fresh
from regard.text.pair import Pair, tagged
from regard.text.text_report import TextReport


class TrainingData(Protocol):
    """The training examples: text in memory, or a store of ids."""

    def __len__(self) -> int: ...

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of examples of each corpus; those of a corpus are behind those of the one before it."""

    def fingerprints(self) -> list[dict[str, int | str]]:
        """Return for each corpus the number of examples and a hash of them."""

    def examples(self) -> Sequence[Pair]:
        """Return the text. Raise DataError where there are only ids."""


@dataclass(frozen=True)
class TextPairs:
    """Training examples as text in memory."""

    pairs: list[Pair]
    left_out: int = 0  # of the examples, because they share words with a test set
    of_epoch: Callable[[int], list[Pair]] | None = None  # new examples for an epoch; None: all epochs have the same
    several: tuple[int, ...] = ()  # how many examples each of several corpora has

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def counts(self) -> tuple[int, ...]:
        return self.several or (len(self.pairs),)

    def fingerprints(self) -> list[dict[str, int | str]]:
        ends = list(accumulate(self.counts, initial=0))
        return [pairs_fingerprint(self.pairs[begin:end]) for begin, end in pairwise(ends)]

    def examples(self) -> Sequence[Pair]:
        return self.pairs


@dataclass(frozen=True)
class Corpus:
    """Training and dev examples."""

    train: TrainingData
    valid: list[Pair]
    report: TextReport = field(default_factory=TextReport)  # what was left out and mended while reading
    notes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # more counts for corpus.json

    @property
    def summary(self) -> str:
        valid = f", {len(self.valid):,} to validate on" if self.valid else ", none to validate on"
        left_out = self.train.left_out if isinstance(self.train, TextPairs) else 0
        verb = "it shares" if left_out == 1 else "they share"
        clean = f" ({counted(left_out, 'other')} left out: {verb} eight consecutive words with a test set)"
        clean = clean if left_out else ""
        corpora = f" ({' + '.join(f'{count:,}' for count in self.train.counts)})" if len(self.train.counts) > 1 else ""
        return f"{counted(len(self.train), 'example')}{corpora} to train on{clean}{valid}"

    def fingerprint(self) -> dict[str, Any]:
        """Return sizes and hashes, with which a resumed run compares its text."""
        found = self.train.fingerprints()
        train = {f"train.{number}": one for number, one in enumerate(found)} if len(found) > 1 else {"train": found[0]}
        return {**train, "valid": pairs_fingerprint(self.valid)}

    def describe(self) -> dict[str, Any]:
        """Return sizes and hashes, and what was left out or mended while reading."""
        return {**self.fingerprint(), **self.report.summary(), **self.notes}


def note_known_examples(recipe: Recipe, corpus: Corpus) -> str:
    """Return a sentence if more than half of the dev examples are training examples too; an empty text otherwise.

    Only text is compared. Toy corpora are generated, and some repeat by design.
    """
    generated = any(one.generate is not None for one in recipe.data.dev_sets)
    valid = [pair for pair in corpus.valid if isinstance(pair.source, str)]
    if generated or not valid or not isinstance(corpus.train, TextPairs):
        return ""
    # Only dev examples are in the set: the training examples may be millions.
    known = set(valid).intersection(corpus.train.pairs)
    count = sum(pair in known for pair in valid)
    if count <= len(valid) / 2:
        return ""
    those, more = f"{count:,} of {counted(len(valid), 'dev example')} are", "little"
    if count == len(valid):
        those, more = f"all {count:,} dev examples are" if count > 1 else "the dev example is", "nothing"
    return f"{those} also in the training data, so dev scores say {more} about new text"


def read_corpus(recipe: Recipe, folders: list[Path]) -> Corpus:
    """Return the corpus of a recipe whose training examples are text."""
    data = recipe.data
    if any(one.store is not None for one in data.corpora):
        raise DataError("only translation trains on a store of ids; name its text in data.train instead")
    report = new_report(data)
    train = _joined([read_pairs_of(recipe, one, folders, report) for one in data.corpora])
    held_out = [one.hold_out for one in data.dev_sets if one.hold_out]
    if not held_out:
        return Corpus(train, read_valid(recipe, folders, report), report)
    if train.of_epoch is not None or held_out[0] >= len(train):
        raise DataError(
            f"data.valid.hold_out is {held_out[0]:,}, but there are {counted(len(train), 'example')} to take "
            "from; hold out fewer, and none of a corpus that is fresh in each epoch"
        )
    return Corpus(replace(train, pairs=train.pairs[: -held_out[0]]), train.pairs[-held_out[0] :], report)


def read_pairs_of(recipe: Recipe, corpus: Bitext, folders: list[Path], report: TextReport) -> TextPairs:
    """Return the examples of one corpus, without those that share words with a test set if the recipe says so."""
    data = recipe.data
    pairs = load_tagged(corpus, data, folders, report)
    if corpus.fresh:
        name, options, tags = str(corpus.generate), corpus.options or {}, data.tags_of(corpus)
        refuse_fresh(name)
        return TextPairs(pairs, of_epoch=lambda epoch: tagged(list(generate(name, options, epoch=epoch)), tags))
    if not data.decontaminate:
        return TextPairs(pairs)
    tests = [load_bitext(test, folders=folders, data=data) for test in data.test.values()]
    kept = list(decontaminated(pairs, chain.from_iterable(tests)))
    return TextPairs(kept, left_out=len(pairs) - len(kept))


def load_tagged(text: Bitext, data: DataConfig, folders: list[Path], report: TextReport) -> list[Pair]:
    """Return the pairs of a set with the symbols that stand in front of their sources."""
    return tagged(load_bitext(text, folders=folders, data=data, report=report), data.tags_of(text))


def _joined(corpora: Sequence[TextPairs]) -> TextPairs:
    """Return several corpora as one, in this order."""
    if len(corpora) == 1:
        return corpora[0]
    counts = tuple(map(len, corpora))

    def of_epoch(epoch: int) -> list[Pair]:
        drawn = [one.pairs if one.of_epoch is None else one.of_epoch(epoch) for one in corpora]
        if tuple(map(len, drawn)) != counts:
            raise DataError("a corpus that is fresh in each epoch must have equally many examples in each, to be mixed")
        return list(chain.from_iterable(drawn))

    pairs = list(chain.from_iterable(one.pairs for one in corpora))
    fresh = any(one.of_epoch is not None for one in corpora)
    return TextPairs(pairs, sum(one.left_out for one in corpora), of_epoch if fresh else None, counts)


def read_valid(recipe: Recipe, folders: list[Path], report: TextReport) -> list[Pair]:
    """Return the dev examples. What is left out or mended is counted in the report."""
    config, sets = recipe.train, recipe.data.dev_sets
    if not sets and (config.patience or config.final == "best"):
        raise ConfigError("train.patience and train.final=best need dev pairs to judge by; name them in data.valid")
    if any(one.hold_out for one in sets):
        raise DataError("a store of ids has no text to hold out; name files in data.valid")
    return interleaved([load_tagged(one, recipe.data, folders, report) for one in sets])


def interleaved(sets: Sequence[list[Pair]]) -> list[Pair]:
    """Return the pairs of several sets so that the first few are from all of them, in proportion to their sizes."""
    if len(sets) == 1:
        return sets[0]
    order = sorted(
        (Fraction(2 * place + 1, 2 * len(pairs)), number, place)
        for number, pairs in enumerate(sets)
        for place in range(len(pairs))
    )
    return [sets[number][place] for _, number, place in order]

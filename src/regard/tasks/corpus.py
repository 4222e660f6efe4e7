"""The examples that a recipe names: pairs of an input line and an output line, in memory or as a store of ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from regard.config import Recipe
from regard.errors import ConfigError, DataError
from regard.messages import counted
from regard.text.bitext import load_bitext, pairs_fingerprint
from regard.text.corpus import Pair
from regard.text.decontamination import decontaminated
from regard.text.generators import generate, refuse_fresh


class TrainingData(Protocol):
    """The training examples: text in memory, or a store of ids."""

    def __len__(self) -> int: ...

    def fingerprint(self) -> dict[str, int | str]:
        """Return the number of examples and a hash of them."""

    def examples(self) -> Sequence[Pair]:
        """Return the text. Raise DataError where there are only ids."""


@dataclass(frozen=True)
class TextPairs:
    """Training examples as text in memory."""

    pairs: list[Pair]
    left_out: int = 0  # of the examples, because they share words with a test set
    of_epoch: Callable[[int], list[Pair]] | None = None  # new examples for an epoch; None: all epochs have the same

    def __len__(self) -> int:
        return len(self.pairs)

    def fingerprint(self) -> dict[str, int | str]:
        return pairs_fingerprint(self.pairs)

    def examples(self) -> Sequence[Pair]:
        return self.pairs


@dataclass(frozen=True)
class Corpus:
    """Training and dev examples."""

    train: TrainingData
    valid: list[Pair]

    @property
    def summary(self) -> str:
        valid = f", {len(self.valid):,} to validate on" if self.valid else ", none to validate on"
        left_out = self.train.left_out if isinstance(self.train, TextPairs) else 0
        clean = f" ({counted(left_out, 'other')} left out for sharing words with a test set)" if left_out else ""
        return f"{counted(len(self.train), 'example')} to train on{clean}{valid}"

    def fingerprint(self) -> dict[str, Any]:
        """Return sizes and hashes, with which a resumed run compares its text."""
        return {"train": self.train.fingerprint(), "valid": pairs_fingerprint(self.valid)}


def read_corpus(recipe: Recipe, folders: list[Path]) -> Corpus:
    """Return the corpus of a recipe whose training examples are text."""
    if recipe.data.train.store is not None:
        raise DataError("only translation trains on a store of ids; name its text in data.train instead")
    bitext, valid = recipe.data.train, recipe.data.valid
    train = _read_train(recipe, folders)
    if valid is not None and valid.hold_out:
        if bitext.fresh or valid.hold_out >= len(train):
            raise DataError(
                f"data.valid.hold_out is {valid.hold_out:,}, but there are {counted(len(train), 'example')} to take "
                "from; hold out fewer, and none of a corpus that is fresh in each epoch"
            )
        return Corpus(replace(train, pairs=train.pairs[: -valid.hold_out]), train.pairs[-valid.hold_out :])
    if bitext.fresh:
        name, options = str(bitext.generate), bitext.options or {}
        refuse_fresh(name)
        train = replace(train, of_epoch=lambda epoch: list(generate(name, options, epoch=epoch)))
    return Corpus(train, read_valid(recipe, folders))


def _read_train(recipe: Recipe, folders: list[Path]) -> TextPairs:
    """Return the training examples, without those that share words with a test set if the recipe says so."""
    data = recipe.data
    pairs = load_bitext(data.train, folders=folders, data=data)
    if not data.decontaminate:
        return TextPairs(pairs)
    tests = [load_bitext(test, folders=folders, data=data) for test in data.test.values()]
    kept = list(decontaminated(pairs, chain.from_iterable(tests)))
    return TextPairs(kept, left_out=len(pairs) - len(kept))


def read_valid(recipe: Recipe, folders: list[Path]) -> list[Pair]:
    """Return the dev examples."""
    config = recipe.train
    if recipe.data.valid is None and (config.patience or config.final == "best"):
        raise ConfigError("train.patience and train.final=best need dev pairs to judge by; name them in data.valid")
    if recipe.data.valid is None:
        return []
    if recipe.data.valid.hold_out:
        raise DataError("a store of ids has no text to hold out; name files in data.valid")
    return load_bitext(recipe.data.valid, folders=folders, data=recipe.data)

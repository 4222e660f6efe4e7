"""The examples that a recipe names: pairs of an input line and an output line, in memory or as a store of ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from regard.config import Recipe
from regard.errors import ConfigError, DataError
from regard.messages import counted
from regard.text.bitext import load_bitext, pairs_fingerprint
from regard.text.corpus import Pair
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
        return f"{counted(len(self.train), 'example')} to train on{valid}"

    def fingerprint(self) -> dict[str, Any]:
        """Return sizes and hashes, with which a resumed run compares its text."""
        return {"train": self.train.fingerprint(), "valid": pairs_fingerprint(self.valid)}


def read_corpus(recipe: Recipe, folders: list[Path]) -> Corpus:
    """Return the corpus of a recipe whose training examples are text."""
    if recipe.data.train.store is not None:
        raise DataError("only translation trains on a store of ids; name its text in data.train instead")
    bitext = recipe.data.train
    train = TextPairs(load_bitext(bitext, folders=folders, data=recipe.data))
    if bitext.fresh:
        name, options = str(bitext.generate), bitext.options or {}
        refuse_fresh(name)
        train = TextPairs(train.pairs, lambda epoch: list(generate(name, options, epoch=epoch)))
    return Corpus(train, read_valid(recipe, folders))


def read_valid(recipe: Recipe, folders: list[Path]) -> list[Pair]:
    """Return the dev examples."""
    config = recipe.train
    if recipe.data.valid is None and (config.patience or config.final == "best"):
        raise ConfigError("train.patience and train.final=best need dev pairs to judge by; name them in data.valid")
    if recipe.data.valid is None:
        return []
    return load_bitext(recipe.data.valid, folders=folders, data=recipe.data)

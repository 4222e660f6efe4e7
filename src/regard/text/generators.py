"""Built-in corpora, which are generated: `generate = "NAME/SPLIT"` in a recipe, and their options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from regard.config import Struct
from regard.errors import DataError, did_you_mean
from regard.text import counting, dates, names, toys
from regard.text.corpus import Pair
from regard.toml import from_table


class NoOptions(Struct, frozen=True):
    """A corpus that is always the same."""


class Generator(NamedTuple):
    """A built-in corpus.

    `make(split, options, epoch)` returns pairs that follow from its arguments alone. The training split of epoch 0 is the
    corpus of a recipe that does not ask for fresh examples; other splits are the same in every epoch.
    """

    make: Callable[[str, Any, int], Iterable[tuple[str, str]]]
    options: type[Struct] = NoOptions
    fresh: bool = False  # whether each epoch can have examples of its own


def _fixed(make: Callable[[str], list[tuple[str, str]]]) -> Generator:
    return Generator(lambda split, options, epoch: make(split))


GENERATORS: dict[str, Generator] = {
    "counting": _fixed(counting.generate),
    "dates": _fixed(dates.generate),
    "names": _fixed(names.generate),
    **{task: _fixed(lambda split, task=task: toys.generate(task, split)) for task in toys.TASKS},  # type: ignore[misc]
    **{name: _fixed(make) for name, make in toys.LABEL_GENERATORS.items()},
}


def generate(name: str, options: Mapping[str, Any], *, epoch: int = 0) -> Iterable[Pair]:
    """Return the pairs of a built-in corpus, named as in "dates/train"."""
    generator, split = _find(name)
    made = generator.make(split, from_table(generator.options, options, where=f"options of {name}"), epoch)
    return (Pair(source, target) for source, target in made)


def refuse_fresh(name: str) -> None:
    """Raise DataError if a corpus is the same in every epoch."""
    if not _find(name)[0].fresh:
        raise DataError(f"{name} is the same in every epoch; leave out fresh")


def _find(name: str) -> tuple[Generator, str]:
    corpus, _, split = name.partition("/")
    if corpus not in GENERATORS:
        raise DataError(f"there is no built-in corpus {corpus!r}; {did_you_mean(corpus, GENERATORS)}")
    return GENERATORS[corpus], split

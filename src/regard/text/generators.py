"""Built-in corpora, which are generated: `generate = "NAME/SPLIT"` in a recipe, and their options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from regard.config import Struct
from regard.errors import DataError, did_you_mean
from regard.text import dates, expressions, ntm_corpora, plane, reviews, rooms, shapes, toys
from regard.text.pair import Pair
from regard.toml import from_table


class NoOptions(Struct, frozen=True):
    """A corpus that is always the same."""


class Generator(NamedTuple):
    """A built-in corpus.

    `make(split, options, epoch)` returns pairs that follow from its arguments alone. The training split of epoch 0 is the
    corpus of a recipe that does not ask for fresh examples. Other splits are the same in every epoch, so they are always
    those of epoch 0.
    """

    make: Callable[[str, Any, int], Iterable[tuple[str, str]]]
    options: type[Struct] = NoOptions
    fresh: bool = False  # whether each epoch can have examples of its own
    splits: Collection[str] = ("train", "valid", "test")


def _fixed(make: Callable[[str], list[tuple[str, str]]]) -> Generator:
    made = cache(make)
    return Generator(lambda split, options, epoch: made(split))


def _of_points(problem: str, options: type[plane.PlaneOptions]) -> Generator:
    return Generator(lambda split, given, epoch: plane.generate(problem, split, given, epoch), options, fresh=True)


GENERATORS: dict[str, Generator] = {
    "dates": _fixed(dates.generate),
    **{name: _fixed(make) for name, make in toys.GENERATORS.items()},
    "expressions": _fixed(expressions.generate),
    "shapes": Generator(shapes.generate, shapes.ShapeOptions, fresh=True, splits=shapes.SEEDS),
    "rooms": Generator(rooms.generate, rooms.RoomsOptions, fresh=True),
    "hull": _of_points("hull", plane.PlaneOptions),
    "tour": _of_points("tour", plane.TourOptions),
    "delaunay": _of_points("delaunay", plane.TriangleOptions),
    "reviews": Generator(reviews.generate, reviews.ReviewOptions, fresh=True),
    "ntm-copy": Generator(ntm_corpora.generate_copy, ntm_corpora.CopyOptions, fresh=True),
    "ntm-repeat": Generator(ntm_corpora.generate_repeat, ntm_corpora.RepeatOptions, fresh=True),
    "ntm-recall": Generator(ntm_corpora.generate_recall, ntm_corpora.RecallOptions, fresh=True),
}


def generate(name: str, options: Mapping[str, Any], *, epoch: int = 0) -> Iterable[Pair]:
    """Return the pairs of a built-in corpus, named as in "dates/train"."""
    generator, split = _find(name)
    given = from_table(generator.options, options, where=f"options of {name}")
    made = generator.make(split, given, epoch if split == "train" else 0)
    return (Pair(source, target) for source, target in made)


def refuse_fresh(name: str) -> None:
    """Raise DataError if a corpus is the same in every epoch."""
    if not _find(name)[0].fresh:
        raise DataError(f"{name} is the same in every epoch; leave out fresh")


def _find(name: str) -> tuple[Generator, str]:
    corpus, _, split = name.partition("/")
    if corpus not in GENERATORS:
        raise DataError(f"there is no built-in corpus {corpus!r}; {did_you_mean(corpus, GENERATORS)}")
    generator = GENERATORS[corpus]
    if split not in generator.splits:
        raise DataError(f"the built-in corpus {corpus} has no split {split!r}; {did_you_mean(split, generator.splits)}")
    return generator, split

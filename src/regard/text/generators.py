"""Built-in corpora, which are generated: `generate = "NAME/SPLIT"` in a recipe, and their options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from regard.config import Struct
from regard.errors import DataError, did_you_mean
from regard.text import binary, counting, dates, expressions, names, plane, reviews, rooms, shapes, toys
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


def _of_points(problem: str, options: type[plane.PlaneOptions]) -> Generator:
    return Generator(lambda split, given, epoch: plane.generate(problem, split, given, epoch), options, fresh=True)


GENERATORS: dict[str, Generator] = {
    "counting": _fixed(counting.generate),
    "dates": _fixed(dates.generate),
    "names": _fixed(names.generate),
    **{task: _fixed(lambda split, task=task: toys.generate(task, split)) for task in toys.TASKS},  # type: ignore[misc]
    **{name: _fixed(make) for name, make in toys.LABEL_GENERATORS.items()},
    "expressions": _fixed(expressions.generate),
    "shapes": Generator(shapes.generate, options=shapes.ShapeOptions, fresh=True),
    "rooms": Generator(rooms.generate, rooms.RoomsOptions, fresh=True),
    "hull": _of_points("hull", plane.PlaneOptions),
    "tour": _of_points("tour", plane.TourOptions),
    "delaunay": _of_points("delaunay", plane.TriangleOptions),
    "reviews": Generator(reviews.generate, reviews.ReviewOptions, fresh=True),
    "ntm-copy": Generator(binary.generate_copy, binary.CopyOptions, fresh=True),
    "ntm-repeat": Generator(binary.generate_repeat, binary.RepeatOptions, fresh=True),
    "ntm-recall": Generator(binary.generate_recall, binary.RecallOptions, fresh=True),
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

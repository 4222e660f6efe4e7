"""Images of one or two coloured shapes or digits, and their captions.

    a red square left of a blue disc        a green 7        a white ring below a pink 3

Of two shapes the larger one is named first, so that an image has one caption. Two shapes are always clearly next to or
above one another. Some combinations of the first shape's colour, its kind and the relation never occur in training: the
split "test" has only those, and "seen" has only others.

Shapes: C images that are drawn together, S pixels of a side.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.config import Struct, between
from regard.text.draws import below
from regard.text.images import Pixels, image_uri

COLOURS = {
    "red": (220, 50, 40),
    "blue": (50, 90, 220),
    "green": (50, 170, 70),
    "yellow": (240, 210, 50),
    "white": (240, 240, 240),
    "purple": (140, 60, 180),
    "cyan": (70, 200, 210),
    "pink": (245, 150, 190),
}
FIGURES = ("square", "cross", "disc", "triangle", "ring", "diamond")
KINDS = (*FIGURES, *"0123456789")
RELATIONS = {"left of": (-1, 0), "right of": (1, 0), "above": (0, -1), "below": (0, 1)}  # of the first to the second
# Digits of 3 x 5 pixels, row by row from the top, one octal digit per row.
DIGITS = ("75557", "26227", "71747", "71717", "55711", "74717", "74757", "71111", "75757", "75717")
SEEDS = {"train": 3, "valid": 4, "seen": 5, "test": 6}
ONE_IN = 5  # images with a single shape
CHUNK = 512  # images that are drawn together


MOST_PIXELS = 2**30  # of all images of a split


class ShapeOptions(Struct, frozen=True):
    """How many images, how large, and of what."""

    count: int = 2000  # images
    size: int = 32  # pixels of a side
    colours: int = len(COLOURS)  # the first of COLOURS
    kinds: int = len(KINDS)  # the first of KINDS

    def check(self) -> None:
        between(self, 1, 1_000_000, "count")
        between(self, 16, 128, "size")
        if self.count * self.size**2 > MOST_PIXELS:
            most = MOST_PIXELS // self.size**2
            raise ValueError(f"count is {self.count:,}; at most {most:,} images of this size fit into memory")
        between(self, 2, len(COLOURS), "colours")
        between(self, 2, len(KINDS), "kinds")


class Shape(NamedTuple):
    """One shape of an image. Places and the radius are in pixels."""

    colour: int
    kind: int
    x: float
    y: float
    radius: float


class Scene(NamedTuple):
    """What is in an image."""

    shapes: tuple[Shape, ...]
    relation: int  # of the first shape to the second
    ground: int  # grey level of the background


def generate(split: str, options: ShapeOptions, epoch: int) -> Iterator[tuple[str, str]]:
    """Yield images as data URIs, and their captions."""
    every = scenes(random.Random(SEEDS[split] + 1000 * epoch), options, held_out=split == "test")
    wanted = islice(every, options.count)
    while chunk := list(islice(wanted, CHUNK)):
        for scene, pixels in zip(chunk, draw(chunk, options.size), strict=True):
            yield image_uri(pixels), caption(scene)


def is_held_out(colour: int, kind: int, relation: int) -> bool:
    """Whether a first shape like this, in this relation to the second, is kept out of training: one in seven."""
    return (colour + 2 * kind + 3 * relation) % 7 == 0


def scenes(generator: random.Random, options: ShapeOptions, *, held_out: bool) -> Iterator[Scene]:
    """Yield scenes without end: only those of the test set, with two shapes, or all others."""

    def number(count: int) -> int:
        return below(generator, count)

    def spread(low: float, high: float) -> float:
        return low + (high - low) * generator.random()

    size = options.size
    while True:
        colours, kinds = ([number(count), number(count)] for count in (options.colours, options.kinds))
        relation, ground = number(len(RELATIONS)), 20 + number(40)
        large, small = size * spread(0.21, 0.25), size * spread(0.14, 0.17)
        single = number(ONE_IN) == 0
        if single and not held_out:
            x, y = spread(large, size - large), spread(large, size - large)
            yield Scene((Shape(colours[0], kinds[0], x, y, large),), 0, ground)
            continue
        # Along the relation the shapes are apart, and across it they are less so.
        far, near = spread(large + small + 1, size - large - small), spread(-0.15, 0.15) * size
        first = spread(large, size - small - far)
        across = spread(large + 0.15 * size, size - large - 0.15 * size)
        dx, dy = list(RELATIONS.values())[relation]
        along = (first, first + far) if dx + dy < 0 else (size - first, size - first - far)
        places = zip(along, (across, across + near), strict=True)
        (x1, y1), (x2, y2) = (place if dx else place[::-1] for place in places)
        if is_held_out(colours[0], kinds[0], relation) == held_out:
            shapes = (Shape(colours[0], kinds[0], x1, y1, large), Shape(colours[1], kinds[1], x2, y2, small))
            yield Scene(shapes, relation, ground)


def caption(scene: Scene) -> str:
    """Return the caption of a scene."""
    names = [f"a {list(COLOURS)[one.colour]} {KINDS[one.kind]}" for one in scene.shapes]
    return f" {list(RELATIONS)[scene.relation]} ".join(names)


def draw(chunk: list[Scene], size: int) -> Pixels:
    """Return the images of scenes: [C, S, S, 3]."""
    pixels = np.empty((len(chunk), size, size, 3), dtype=np.uint8)
    pixels[:] = np.array([scene.ground for scene in chunk], dtype=np.uint8)[:, None, None, None]
    palette = np.array(list(COLOURS.values()), dtype=np.uint8)
    for turn in (0, 1):
        drawn = [(number, scene.shapes[turn]) for number, scene in enumerate(chunk) if turn < len(scene.shapes)]
        for kind in {shape.kind for _, shape in drawn}:
            these = [(number, shape) for number, shape in drawn if shape.kind == kind]
            inside = _inside(KINDS[kind], [shape for _, shape in these], size)
            which, rows, columns = np.nonzero(inside)
            numbers = np.array([number for number, _ in these])[which]
            pixels[numbers, rows, columns] = palette[[shape.colour for _, shape in these]][which]
    return pixels


def _inside(kind: str, shapes: list[Shape], size: int) -> NDArray[np.bool_]:
    """Return which pixels belong to each of these shapes of one kind: [C, S, S]."""
    centre = np.arange(size) + 0.5
    radius = np.array([shape.radius for shape in shapes])[:, None, None]
    # In units of the radius, from the centre of the shape.
    u = (centre[None, None, :] - np.array([shape.x for shape in shapes])[:, None, None]) / radius
    v = (centre[None, :, None] - np.array([shape.y for shape in shapes])[:, None, None]) / radius
    if kind == "square":
        return (abs(u) <= 0.85) & (abs(v) <= 0.85)
    if kind == "disc":
        return u * u + v * v <= 1
    if kind == "triangle":
        return (v <= 0.85) & (2 * abs(u) <= v + 1)
    if kind == "cross":
        return (np.minimum(abs(u), abs(v)) <= 0.3) & (np.maximum(abs(u), abs(v)) <= 1)
    if kind == "ring":
        return (u * u + v * v <= 1) & (u * u + v * v >= 0.3)
    if kind == "diamond":
        return abs(u) + abs(v) <= 1.1
    bits = np.array([[int(row) >> shift & 1 for shift in (2, 1, 0)] for row in DIGITS[int(kind)]], dtype=np.bool_)
    column, row = (u + 0.6) / 0.4, (v + 1) / 0.4
    across = (column >= 0) & (column < 3)
    down = (row >= 0) & (row < 5)
    return across & down & bits[row.clip(0, 4).astype(int), column.clip(0, 2).astype(int)]

"""Problems about points in the plane whose answers are positions of the points (Vinyals et al. 2015).

    hull        the corners of the convex hull, counter-clockwise
    tour        all points in the order of a short round trip, counter-clockwise (the sign of the enclosed area)
    delaunay    the triangles of the Delaunay triangulation, three positions each, in the order of their incenters

    0.100000,0.100000 0.500000,0.300000 0.900000,0.200000 0.400000,0.800000   →   0 2 3        (hull)

Points are uniform in the unit square, in random order, with six decimals; answers are computed from these decimals. The
option `start` says where the answer begins, which is otherwise arbitrary. "index": at the smallest position, as
published; triangles are in ascending order of positions. "lowest": at the lowest point, and triangles are counter-clockwise.
A model that does not know the order of its input can learn the second only.

Shapes: R instances, n points, C = n (n - 1) (n - 2) / 6 triples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.config import Struct, between
from regard.text import tours

DIGITS = 6  # decimals of a coordinate
ROWS = 2048  # instances of one size that are solved together
MOST_NUMBERS = 2**28  # coordinates of a corpus
SEEDS = {"train": 0, "valid": 1, "test": 2}

Points = NDArray[np.int64]  # coordinates, in units of the last decimal: [R, n, 2]
Start = Literal["index", "lowest"]


class Answers(NamedTuple):
    """Positions, [R, most], of which each instance has the first `sizes`, [R]."""

    positions: NDArray[np.int64]
    sizes: NDArray[np.int64]


class PlaneOptions(Struct, frozen=True):
    """The size of a corpus of points: each instance has from `min_points` to `max_points`, all equally often."""

    min_points: int = 5
    max_points: int = 50
    count: int = 1000
    seed: int = 1
    start: Start = "index"

    def check(self) -> None:
        between(self, 3, 1000, "min_points", "max_points")
        between(self, 1, 2**24, "count")
        between(self, 0, 2**32, "seed")
        if self.min_points > self.max_points:
            raise ValueError(f"min_points is {self.min_points}, more than max_points ({self.max_points})")
        if 2 * self.count * self.max_points > MOST_NUMBERS:
            raise ValueError(f"count is {self.count:,}; so many points do not fit, so take fewer, and fresh = true")


class TourOptions(PlaneOptions, frozen=True):
    """The size of a corpus of tours."""

    max_points: int = 20

    def check(self) -> None:
        super().check()
        between(self, 3, 64, "max_points")


class TriangleOptions(PlaneOptions, frozen=True):
    """The size of a corpus of triangulations. All triples of points are tried, so there are few points."""

    max_points: int = 10

    def check(self) -> None:
        super().check()
        between(self, 3, 32, "max_points")


def generate(problem: str, split: str, options: PlaneOptions, epoch: int) -> Iterator[tuple[str, str]]:
    """Return lines of points and of positions."""
    generator = np.random.default_rng([options.seed, SEEDS[split], epoch])
    sizes = generator.integers(options.min_points, options.max_points, size=options.count, endpoint=True)
    sources, targets = [""] * options.count, [""] * options.count
    for n in np.unique(sizes):
        places = np.flatnonzero(sizes == n)
        for first in range(0, len(places), ROWS):
            some = places[first : first + ROWS]
            points = generator.integers(0, 10**DIGITS, size=(len(some), n, 2))
            answers = SOLVERS[problem](points, options.start)
            for place, source, target in zip(some.tolist(), lines_of(points), position_lines(answers), strict=True):
                sources[place], targets[place] = source, target
    return zip(sources, targets, strict=True)


def lines_of(points: Points) -> list[str]:
    """Return a line of elements per instance, as in "0.250000,0.500000 0.100000,0.900000"."""
    count, n = points.shape[:2]
    width = DIGITS + 3  # of "0.", the digits, and what follows
    characters = np.empty((count, n, 2, width), dtype=np.uint8)
    characters[..., :2] = np.frombuffer(b"0.", dtype=np.uint8)
    rest = points.copy()
    for place in range(width - 2, 1, -1):
        rest, digit = np.divmod(rest, 10)
        characters[..., place] = digit + ord("0")
    characters[:, :, 0, -1], characters[:, :, 1, -1] = ord(","), ord(" ")
    text, length = characters.tobytes().decode("ascii"), n * 2 * width
    return [text[first : first + length - 1] for first in range(0, count * length, length)]


def position_lines(answers: Answers) -> list[str]:
    """Return a line of positions per instance."""
    names = [str(number) for number in range(int(answers.positions.max(initial=0)) + 1)]
    rows = zip(answers.positions.tolist(), answers.sizes.tolist(), strict=True)
    return [" ".join([names[position] for position in row[:size]]) for row, size in rows]


# Convex hulls


def convex_hulls(points: Points) -> Answers:
    """Return the corners of each hull, counter-clockwise from its leftmost point (the monotone chain of Andrew 1979)."""
    count, n = points.shape[:2]
    order = np.lexsort((points[:, :, 1], points[:, :, 0]), axis=-1)
    x, y = np.take_along_axis(points[:, :, 0], order, axis=1), np.take_along_axis(points[:, :, 1], order, axis=1)
    stack = np.zeros((count, 2 * n), dtype=np.int64)  # places in that order
    sizes, floor, rows = np.zeros(count, dtype=np.int64), np.full(count, 2), np.arange(count)
    # From left to right along the lower side, then back along the upper one, which leaves the lower as it is.
    for step, place in enumerate([*range(n), *range(n - 2, -1, -1)]):
        if step == n:
            floor = sizes + 1
        active = rows[sizes >= floor]
        while len(active):
            last, before = stack[active, sizes[active] - 1], stack[active, sizes[active] - 2]
            x0, y0 = x[active, before], y[active, before]
            turn = (x[active, last] - x0) * (y[active, place] - y0) - (y[active, last] - y0) * (x[active, place] - x0)
            active = active[turn <= 0]
            sizes[active] -= 1
            active = active[sizes[active] >= floor[active]]
        stack[rows, sizes] = place
        sizes += 1
    return Answers(np.take_along_axis(order, stack[:, :n], axis=1), sizes - 1)  # the first point is the last one again


def _hulls(points: Points, start: Start) -> Answers:
    return begin_at(convex_hulls(points), points, start)


def begin_at(answers: Answers, points: Points, start: Start) -> Answers:
    """Return the same cycles, each beginning at its smallest position, or at its lowest point."""
    positions, sizes = answers
    places = np.arange(positions.shape[1])
    rank = positions if start == "index" else np.take_along_axis(_heights(points), positions, axis=1)
    first = np.where(places < sizes[:, None], rank, np.iinfo(np.int64).max).argmin(axis=1)[:, None]
    return Answers(np.take_along_axis(positions, (places + first) % sizes[:, None], axis=1), sizes)


def _heights(points: Points) -> NDArray[np.int64]:
    """Return a number per point by which the lowest is found; of equally low ones the leftmost: [R, n]."""
    heights: NDArray[np.int64] = points[:, :, 1] * 10**DIGITS + points[:, :, 0]
    return heights


# Tours


def _tours(points: Points, start: Start) -> Answers:
    found = tours.solve(tours.distances_between(points))
    x, y = (np.take_along_axis(points[:, :, axis], found, axis=1) for axis in (0, 1))
    clockwise = (x * np.roll(y, -1, axis=1) - y * np.roll(x, -1, axis=1)).sum(axis=1) < 0
    found = np.where(clockwise[:, None], found[:, ::-1], found)
    return begin_at(Answers(found, np.full(len(found), found.shape[1])), points, start)


# Delaunay triangulations


def _triangulations(points: Points, start: Start) -> Answers:
    count, n = points.shape[:2]
    triples = np.array(list(combinations(range(n), 3)))
    rows = max(1, 2**22 // (len(triples) * n))
    empty = np.concatenate([_empty_circles(points[at : at + rows], triples) for at in range(0, count, rows)])
    centers = _incenters(points, triples)  # [R, C, 2]
    corners = np.broadcast_to(triples, (count, *triples.shape))
    if start == "lowest":
        corners = np.where(_turns(points, triples)[..., None] < 0, triples[:, ::-1], triples)
        heights = np.take_along_axis(_heights(points), corners.reshape(count, -1), axis=1).reshape(corners.shape)
        corners = np.take_along_axis(corners, (np.arange(3) + heights.argmin(axis=-1)[..., None]) % 3, axis=-1)
    # Triangles first, those by their incenters.
    order = np.lexsort((centers[..., 1], centers[..., 0], ~empty), axis=-1)
    sizes = empty.sum(axis=1)
    order = order[:, : sizes.max(initial=1)]
    found = np.take_along_axis(corners, order[..., None], axis=1)
    return Answers(found.reshape(count, -1), 3 * sizes)


def _turns(points: Points, triples: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return twice the signed area of each triple, positive if counter-clockwise: [R, C]."""
    a, b, c = (points[:, triples[:, corner]].astype(np.float64) for corner in range(3))
    area: NDArray[np.float64] = (b - a)[..., 0] * (c - a)[..., 1] - (b - a)[..., 1] * (c - a)[..., 0]
    return area


def _empty_circles(points: Points, triples: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return True for triples whose circumcircle has no point inside: [R, C].

    The determinants are in double precision: points within 1e-15 of a circle's radius may be misjudged.
    """
    corners = [points[:, triples[:, corner], None].astype(np.float64) for corner in range(3)]
    (ax, ay), (bx, by), (cx, cy) = ((one - points[:, None]).transpose(3, 0, 1, 2) for one in corners)  # each [R, C, n]
    a2, b2, c2 = ax * ax + ay * ay, bx * bx + by * by, cx * cx + cy * cy
    inside = ax * (by * c2 - b2 * cy) - ay * (bx * c2 - b2 * cx) + a2 * (bx * cy - by * cx)
    turn = _turns(points, triples)
    inside *= np.sign(turn)[..., None]
    np.put_along_axis(inside, np.broadcast_to(triples, (len(points), *triples.shape)), -1.0, axis=-1)
    empty: NDArray[np.bool_] = (inside <= 0).all(axis=-1) & (turn != 0)
    return empty


def _incenters(points: Points, triples: NDArray[np.int64]) -> NDArray[np.float64]:
    a, b, c = (points[:, triples[:, corner]].astype(np.float64) for corner in range(3))
    sides = [np.linalg.norm(one - other, axis=-1, keepdims=True) for one, other in ((b, c), (a, c), (a, b))]
    centers: NDArray[np.float64] = (sides[0] * a + sides[1] * b + sides[2] * c) / np.maximum(sum(sides), 1e-12)
    return centers


SOLVERS: dict[str, Callable[[Points, Start], Answers]] = {
    "hull": _hulls,
    "tour": _tours,
    "delaunay": _triangulations,
}
MOST_POINTS = {"hull": 10_000, "tour": 64, "delaunay": 32}  # of an instance that `right_answer` solves


def right_answer(problem: str, points: NDArray[np.float64]) -> list[int] | None:
    """Return the answer for points anywhere in the plane, [n, 2]. None for too few or too many of them."""
    if not 3 <= len(points) <= MOST_POINTS[problem]:
        return None
    low = points.min(axis=0)
    span = max(float((points - low).max()), 1e-12)
    # To the grid of the corpora, on which the solvers are exact.
    exact = np.rint((points - low) / span * (10**DIGITS - 1)).astype(np.int64)
    positions, sizes = SOLVERS[problem](exact[None], "index")
    return [int(one) for one in positions[0, : sizes[0]]]

"""Metrics of what a pointer network finds among points in the plane: hulls, tours and triangulations.

The inputs are lines of points. An output may begin at any corner of a hull or city of a tour.

hull_accuracy           percentage of hulls with the right corners in the right cyclic order
area_coverage           area of the polygon over that of the true hull, a mean over outputs that are simple polygons
invalid_hulls           percentage of outputs that are no simple polygon: too few or repeated corners, or crossing sides
tour_ratio              mean of length over length of the reference
tour_length             mean length of the tours
invalid_tours           percentage of tours that are no permutation. For the length they are repaired: repeated cities are
                        left out, and missing ones follow in the order of the input
triangulation_accuracy  percentage of outputs with the right set of triangles
triangle_coverage       percentage of the references' triangles that the outputs have

They are those of the paper (Vinyals et al. 2015, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.config import EvaluateConfig
from regard.errors import DataError
from regard.messages import counted
from regard.metrics.base import POSITIONS, Metric, MetricFunction
from regard.text.elements import parse_elements, parse_positions

HULLS, TOURS, TRIANGLES = "hulls", "tours", "triangles"
KINDS = {"sequence": POSITIONS, "hull": HULLS, "tour": TOURS, "triangles": TRIANGLES}  # by `evaluate.positions`

Points = NDArray[np.float64]  # [n, 2]


def points_of(line: str) -> Points:
    """Return the points of an input."""
    parsed = parse_elements([" ".join(line.split())], 2)
    if parsed is None:
        raise DataError(f"{line[:80]!r} is not a line of points, as in 0.25,0.5; set evaluate.positions=sequence")
    return parsed[0].astype(np.float64)


def indices_of(line: str) -> list[int]:
    """Return the positions in an output."""
    parsed = parse_positions([" ".join(line.split())]) if line.strip() else None
    return [] if parsed is None else [int(one) for one in parsed[0]]


def choose(points: Points, line: str) -> Points:
    """Return the points at the positions in an output."""
    indices = indices_of(line)
    if indices and max(indices) >= len(points):
        raise DataError(
            f"{line[:80]!r} has positions outside of its {counted(len(points), 'point')}; they count from 0"
        )
    return points[indices]


def same_cycle(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two cycles are the same, wherever they begin. Their direction counts."""
    if len(one) != len(other) or not one or one[0] not in other:
        return len(one) == len(other) == 0
    first = list(other).index(one[0])
    return [*other[first:], *other[:first]] == list(one)


def signed_area(corners: Points) -> float:
    """Return the area of a polygon, positive if its corners are counter-clockwise."""
    x, y = corners.T
    return float((x * np.roll(y, -1) - y * np.roll(x, -1)).sum() / 2)


def is_simple(corners: Points) -> bool:
    """Whether a polygon has three or more distinct corners and no two of its sides cross."""
    n = len(corners)
    if n < 3 or len(np.unique(corners, axis=0)) < n:
        return False
    ends = np.roll(corners, -1, axis=0)

    def side_of(points: Points) -> NDArray[np.float64]:
        """Return on which side of each side of the polygon each point is: [n sides, n points]."""
        way, to = (ends - corners)[:, None], points[None] - corners[:, None]
        return np.sign(way[..., 0] * to[..., 1] - way[..., 1] * to[..., 0])

    apart = side_of(corners) * side_of(ends) < 0  # the ends of a side are on both sides of another one
    crossing = apart & apart.T
    return not crossing.any()


def _mean(values: Sequence[float], *, empty: float = 0.0) -> float:
    return float(np.mean(values)) if len(values) else empty


# Hulls


def hull_accuracy(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    pairs = zip(outputs, references, strict=True)
    right = sum(same_cycle(indices_of(one), indices_of(other)) for one, other in pairs)
    return 100 * right / len(references), "same corners in the same cyclic order"


def area_coverage(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    shares = []
    for output, reference, line in zip(outputs, references, inputs, strict=True):
        points = points_of(line)
        corners = choose(points, output)
        if is_simple(corners):
            shares.append(abs(signed_area(corners)) / max(abs(signed_area(choose(points, reference))), 1e-12))
    return 100 * _mean(shares), f"mean over {counted(len(shares), 'simple polygon')}"


def invalid_hulls(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    pairs = zip(outputs, inputs, strict=True)
    wrong = sum(not is_simple(choose(points_of(line), output)) for output, line in pairs)
    return 100 * wrong / len(outputs), "outputs that are no simple polygon"


# Tours


def is_permutation(tour: Sequence[int], n: int) -> bool:
    """Whether a tour visits each city once."""
    return sorted(tour) == list(range(n))


def length_of(points: Points, tour: Sequence[int]) -> float:
    """Return the length of a tour, the way back included. One that is no permutation is repaired."""
    cities = range(len(points))
    corners = points[list(dict.fromkeys([*(city for city in tour if city in cities), *cities]))]
    return float(np.linalg.norm(corners - np.roll(corners, -1, axis=0), axis=1).sum())


def tour_length(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    lengths = [length_of(points_of(line), indices_of(tour)) for tour, line in zip(outputs, inputs, strict=True)]
    own = [length_of(points_of(line), indices_of(tour)) for tour, line in zip(references, inputs, strict=True)]
    return _mean(lengths), f"mean; references {_mean(own):.3f}"


def tour_ratio(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    ratios = []
    for output, reference, line in zip(outputs, references, inputs, strict=True):
        points = points_of(line)
        ratios.append(length_of(points, indices_of(output)) / max(length_of(points, indices_of(reference)), 1e-12))
    return _mean(ratios), "mean of length over length of the reference"


def invalid_tours(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    pairs = zip(outputs, inputs, strict=True)
    wrong = sum(not is_permutation(indices_of(tour), len(line.split())) for tour, line in pairs)
    return 100 * wrong / len(outputs), "tours that do not visit each city once"


# Triangulations


def triangles_of(line: str) -> set[frozenset[int]]:
    """Return the triangles of an output: its positions, three at a time."""
    positions = indices_of(line)
    return {frozenset(positions[at : at + 3]) for at in range(0, len(positions), 3)}


def triangulation_accuracy(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    right = sum(triangles_of(one) == triangles_of(other) for one, other in zip(outputs, references, strict=True))
    return 100 * right / len(references), "same set of triangles"


def triangle_coverage(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    pairs = [(triangles_of(one), triangles_of(other)) for one, other in zip(outputs, references, strict=True)]
    found, total = sum(len(one & other) for one, other in pairs), sum(len(other) for _, other in pairs)
    return 100 * found / max(total, 1), "triangles of all references that the outputs have"


def _metric(
    kind: str, function: MetricFunction[str], label: str, *, higher: bool, unit: str = "%", decimals: int = 1
) -> Metric[str]:
    return Metric(function.__name__, function, higher, label, unit=unit, decimals=decimals, compares=(kind,))


PLANE_METRICS = (
    _metric(HULLS, hull_accuracy, "hull accuracy", higher=True),
    _metric(HULLS, area_coverage, "area coverage", higher=True, decimals=2),
    _metric(HULLS, invalid_hulls, "invalid hulls", higher=False),
    _metric(TOURS, tour_ratio, "tour ratio", higher=False, unit="", decimals=4),
    _metric(TOURS, tour_length, "tour length", higher=False, unit="", decimals=3),
    _metric(TOURS, invalid_tours, "invalid tours", higher=False),
    _metric(TRIANGLES, triangulation_accuracy, "triangulation accuracy", higher=True),
    _metric(TRIANGLES, triangle_coverage, "triangle coverage", higher=True),
)

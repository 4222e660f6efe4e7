"""Points in the plane, what a pointer network found among them, the right answer, and where each step pointed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.explain.attention import AttentionWeights

FOUND, EXPECTED, POINTED, INK = "#1f5fbf", "#e08a00", "#b02a5b", "#1f2933"
MIN_WEIGHT = 0.02  # smaller weights are not drawn
MOST_NUMBERED = 60  # points that have their numbers next to them

Points = NDArray[np.float64]  # [n, 2]


def draw_plane(
    plt: Any,
    points: Points,
    found: Sequence[int],
    expected: Sequence[int] | None,
    weights: AttentionWeights,
    *,
    triangles: bool = False,
) -> Any:
    """Return a figure of two panels: the answers, and the weights from each position that was output to the next.

    `weights` are those of each output over the points: [outputs and the end, n]. With `triangles`, every three positions are
    one.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 5.2), sharex=True, sharey=True)
    if expected is not None:
        _draw_cycles(left, points, _cycles(expected, triangles), EXPECTED, "right answer", width=5.0, alpha=0.45)
    _draw_cycles(left, points, _cycles(found, triangles), FOUND, "output", width=1.4, alpha=1.0)
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.05), ncols=2, frameon=False)
    for step in range(1, len(found)):
        for number in np.flatnonzero(weights[step] >= MIN_WEIGHT).tolist():
            _draw_arrow(right, points[found[step - 1]], points[number], float(weights[step, number]))
    left.set_title("the output")
    right.set_title("where each step pointed, from the last one")
    for axes in (left, right):
        axes.scatter(*points.T, s=14, color=INK, zorder=3)
        axes.set_aspect("equal")
        for side in axes.spines.values():
            side.set_visible(False)
        axes.tick_params(labelsize=8)
        for number, point in enumerate(points[:MOST_NUMBERED]):
            axes.annotate(str(number), point, xytext=(3, 3), textcoords="offset points", fontsize=7, color=INK)
    return figure


def _cycles(positions: Sequence[int], triangles: bool) -> list[list[int]]:
    """Return the polygons that positions stand for."""
    if not triangles:
        return [list(positions)]
    return [list(positions[at : at + 3]) for at in range(0, len(positions), 3)]


def _draw_cycles(
    axes: Any, points: Points, cycles: Iterable[Sequence[int]], colour: str, label: str, *, width: float, alpha: float
) -> None:
    for number, cycle in enumerate(cycles):
        corners = points[[*cycle, *cycle[:1]]]
        axes.plot(
            *corners.T,
            color=colour,
            linewidth=width,
            alpha=alpha,
            solid_joinstyle="round",
            label=None if number else label,
        )


def _draw_arrow(axes: Any, here: Points, there: Points, weight: float) -> None:
    style = {"arrowstyle": "-|>", "color": POINTED, "alpha": min(1.0, weight), "linewidth": 0.6 + 1.2 * weight}
    axes.annotate("", xy=there, xytext=here, arrowprops={**style, "shrinkA": 2, "shrinkB": 2})

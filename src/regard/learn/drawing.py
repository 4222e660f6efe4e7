"""Small drawings as SVG: circles, boxes and arrows in the colours of the site, so that they are legible in dark mode."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence

RADIUS = 12.0
PANEL, POINTS = 150.0, 40  # of a curve: the width of its panel, and its points
Point = tuple[float, float]


class Drawing:
    """Shapes in the order they are added. Classes of site.css give the colours; no size or colour is set elsewhere."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.edges: list[str] = []
        self.shapes: list[str] = []

    def node(self, at: Point, text: str = "", *, kind: str = "inner") -> None:
        """Add a circle: `in`, `inner` or `out`."""
        self.shapes.append(f'<circle class="d-{kind}" cx="{at[0]:g}" cy="{at[1]:g}" r="{RADIUS:g}"/>')
        if text:
            self.text(at, text, kind=kind)

    def box(self, at: Point, size: Point, text: str = "", *, kind: str = "inner", opacity: float = 1) -> None:
        """Add a rectangle around its centre."""
        x, y = at[0] - size[0] / 2, at[1] - size[1] / 2
        faint = "" if opacity == 1 else f' fill-opacity="{opacity:g}"'
        self.shapes.append(
            f'<rect class="d-{kind}"{faint} x="{x:g}" y="{y:g}" width="{size[0]:g}" height="{size[1]:g}" rx="4"/>'
        )
        if text:
            self.text(at, text, kind=kind)

    def text(self, at: Point, text: str, *, kind: str = "label", anchor: str = "middle") -> None:
        self.shapes.append(
            f'<text class="d-text d-{kind}-text" x="{at[0]:g}" y="{at[1] + 4.5:g}" text-anchor="{anchor}">'
            f"{html.escape(text)}</text>"
        )

    def dot(self, at: Point, *, kind: str = "dot") -> None:
        self.shapes.append(f'<circle class="d-{kind}" cx="{at[0]:g}" cy="{at[1]:g}" r="4"/>')

    def arrow(self, start: Point, end: Point, *, path: bool = False, width: float = 1.3, gap: float = RADIUS) -> None:
        """Add an arrow between two nodes. `path` highlights it."""
        length = math.dist(start, end)
        unit = ((end[0] - start[0]) / length, (end[1] - start[1]) / length)
        a = (start[0] + unit[0] * gap, start[1] + unit[1] * gap)
        b = (end[0] - unit[0] * (gap + 2), end[1] - unit[1] * (gap + 2))
        back = (b[0] - unit[0] * 6, b[1] - unit[1] * 6)
        side = (-unit[1] * 3.2, unit[0] * 3.2)
        kind = "path" if path else "edge"
        ends = f"M{a[0]:.1f} {a[1]:.1f}L{back[0]:.1f} {back[1]:.1f}"
        line = f'<path class="d-{kind}" stroke-width="{2.6 if path else width:g}" d="{ends}"/>'
        tip = (
            f"M{b[0]:.1f} {b[1]:.1f}L{back[0] + side[0]:.1f} {back[1] + side[1]:.1f}"
            f"L{back[0] - side[0]:.1f} {back[1] - side[1]:.1f}Z"
        )
        # What is highlighted lies above the other edges.
        place = len(self.edges) if path else 0
        self.edges.insert(place, f'{line}<path class="d-{kind}-tip" d="{tip}"/>')

    def line(self, points: Sequence[Point], *, kind: str = "edge") -> None:
        """Add a line: `edge`, `path` or `rule`."""
        places = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        width = {"edge": 1.6, "path": 2.6, "rule": 1}[kind]
        self.edges.append(f'<path class="d-{kind}" stroke-width="{width:g}" d="M{places}"/>')

    def svg(self, label: str) -> str:
        """Return the drawing, with words for those who cannot see it."""
        return (
            f'<svg class="drawing" width="{self.width:g}" viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-label="{html.escape(label)}">{"".join(self.edges)}{"".join(self.shapes)}</svg>'
        )


def loss_curves() -> Drawing:
    """Four ways that training goes: the loss of training text thick, that of dev text thin."""
    panels: list[tuple[str, Callable[[float], float], Callable[[float], float]]] = [
        ("A", lambda t: 0.1 + 0.8 * math.exp(-4 * t), lambda t: 0.17 + 0.74 * math.exp(-4 * t)),
        (
            "B",
            lambda t: 0.4 + 0.5 * math.exp(-9 * t) if t < 0.35 else 0.72,
            lambda t: 0.44 + 0.47 * math.exp(-9 * t) if t < 0.35 else 0.76,
        ),
        ("C", lambda t: 0.04 + 0.86 * math.exp(-5 * t), lambda t: 0.2 + 0.7 * math.exp(-6 * t) + 0.35 * t**2),
        ("D", lambda t: 0.6 + 0.3 * math.exp(-12 * t), lambda t: 0.63 + 0.28 * math.exp(-12 * t)),
    ]
    drawing = Drawing(PANEL * len(panels), 140)
    for number, (name, train, dev) in enumerate(panels):
        left = PANEL * number + 18
        drawing.line([(left, 12), (left, 112), (left + PANEL - 30, 112)], kind="rule")
        drawing.text((left + PANEL / 2 - 12, 128), name)
        for curve, kind in ((dev, "edge"), (train, "path")):
            times = [step / POINTS for step in range(POINTS + 1)]
            drawing.line([(left + 4 + 114 * t, 112 - 100 * curve(t)) for t in times], kind=kind)
    return drawing

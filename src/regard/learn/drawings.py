"""All drawings of the chapters by name: those of the family tree, and curves of training."""

from __future__ import annotations

import math
from collections.abc import Callable

from regard.learn.drawing import Drawing
from regard.learn.family import FAMILY

PANEL, POINTS = 150.0, 40


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


DRAWINGS: dict[str, Callable[[], Drawing]] = {**FAMILY, "curves": loss_curves}

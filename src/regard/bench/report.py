"""The measurements of Table 1 as text, as JSON data and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.bench.table1 import LAYERS, Measurement, crossing, growth
from regard.errors import require

FITTED_SIZES = 3  # exponents are fitted to the largest sizes, because small ones measure overhead


def by_length(points: Sequence[Measurement], layer: str, width: int) -> list[tuple[int, float]]:
    """Return (length, seconds) of a layer at one width, shortest first."""
    return sorted((one.length, one.seconds) for one in points if (one.kind, one.width) == (layer, width))


def by_width(points: Sequence[Measurement], layer: str, length: int) -> list[tuple[int, float]]:
    """Return (width, seconds) of a layer at one length, narrowest first."""
    return sorted((one.width, one.seconds) for one in points if (one.kind, one.length) == (layer, length))


def summarize(points: Sequence[Measurement], *, width: int, length: int) -> dict[str, Any]:
    """Return the measured growth of each layer, that of the paper, and where the curves cross."""
    rows = [
        {
            "layer": layer.name,
            "operations": layer.operations,
            "sequential": layer.sequential,
            "path": layer.path,
            "in_length": _growth(by_length(points, layer.name, width)),
            "paper_in_length": layer.in_length,
            "in_width": _growth(by_width(points, layer.name, length)),
            "paper_in_width": layer.in_width,
        }
        for layer in LAYERS
    ]
    crossings = {layer.name: _crossing(points, LAYERS[0].name, layer.name, width) for layer in LAYERS[1:]}
    return {"width": width, "length": length, "rows": rows, "self_attention_is_slower_from": crossings}


def _crossing(points: Sequence[Measurement], first: str, second: str, width: int) -> float | None:
    """Return the length from which the first layer takes longer, from lengths at which both were measured."""
    one, other = dict(by_length(points, first, width)), dict(by_length(points, second, width))
    sizes = [size for size in one if size in other]
    if not sizes:
        return None
    return crossing(sizes, [one[size] for size in sizes], [other[size] for size in sizes])


def _growth(measured: Sequence[tuple[int, float]]) -> float | None:
    last = measured[-FITTED_SIZES:]
    if len(last) < 2:
        return None
    return round(growth([size for size, _ in last], [seconds for _, seconds in last]), 2)


def as_text(points: Sequence[Measurement], summary: dict[str, Any]) -> str:
    """Return the table with the exponents of the paper, the times, and the crossings."""
    width, length = summary["width"], summary["length"]
    lines = [
        f"{'layer':16}{'operations':>12}{'sequential':>12}{'path':>10}{'time grows with n':>20}{'with d':>16}",
        *(
            f"{row['layer']:16}{row['operations']:>12}{row['sequential']:>12}{row['path']:>10}"
            f"{_exponent(row['in_length']):>11} (paper {row['paper_in_length']})"
            f"{_exponent(row['in_width']):>7} (paper {row['paper_in_width']})"
            for row in summary["rows"]
        ),
        "",
        f"milliseconds at d = {width}",
        f"{'n':>8}" + "".join(f"{layer.name:>16}" for layer in LAYERS),
    ]
    table = {(one.kind, one.length, one.width): one.seconds for one in points}
    for n in sorted({one.length for one in points if one.width == width}):
        lines.append(f"{n:>8}" + "".join(f"{_ms(table.get((layer.name, n, width))):>16}" for layer in LAYERS))
    lines += ["", f"milliseconds at n = {length}", f"{'d':>8}" + "".join(f"{layer.name:>16}" for layer in LAYERS)]
    for d in sorted({one.width for one in points if one.length == length}):
        lines.append(f"{d:>8}" + "".join(f"{_ms(table.get((layer.name, length, d))):>16}" for layer in LAYERS))
    lines.append("")
    for name, place in summary["self_attention_is_slower_from"].items():
        where = "at no measured length" if place is None else f"from n = {place:,.0f}"
        lines.append(f"self-attention takes longer than {name} {where}")
    return "\n".join(lines)


def _exponent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"


def as_data(points: Sequence[Measurement], summary: dict[str, Any], machine: dict[str, Any]) -> dict[str, Any]:
    """Return everything as JSON data."""
    return {"benchmark": "table1", "machine": machine, **summary, "points": [asdict(one) for one in points]}


def draw(points: Sequence[Measurement], summary: dict[str, Any], path: Path) -> None:
    """Draw time against length and against width, on logarithmic axes."""
    matplotlib = require("matplotlib", extra="plots")
    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5))
    for layer in LAYERS:
        lengths, widths = (
            by_length(points, layer.name, summary["width"]),
            by_width(points, layer.name, summary["length"]),
        )
        left.plot(*zip(*lengths, strict=True), marker="o", label=f"{layer.name}, {layer.operations}")
        right.plot(*zip(*widths, strict=True), marker="o", label=layer.name)
    left.set_xlabel(f"tokens n, at d = {summary['width']}")
    right.set_xlabel(f"width d, at n = {summary['length']}")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_ylabel("seconds per layer, forward pass")
        axes.grid(alpha=0.3)
    left.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})

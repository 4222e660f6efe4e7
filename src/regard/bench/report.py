"""Table 1's measurements as a table to read, as data and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.bench.table1 import KINDS, Point, crossing, growth
from regard.errors import require

UPPER = 3  # sizes at the large end that an exponent is fitted to: small ones measure overhead


def by_length(points: Sequence[Point], kind: str, width: int) -> list[tuple[int, float]]:
    """Length and seconds of a kind at one width, shortest first."""
    return sorted((one.length, one.seconds) for one in points if (one.kind, one.width) == (kind, width))


def by_width(points: Sequence[Point], kind: str, length: int) -> list[tuple[int, float]]:
    """Width and seconds of a kind at one length, narrowest first."""
    return sorted((one.width, one.seconds) for one in points if (one.kind, one.length) == (kind, length))


def summarize(points: Sequence[Point], *, width: int, length: int) -> dict[str, Any]:
    """Growth of each kind beside the paper's, and where the curves cross."""
    rows = [
        {
            "layer": kind.name,
            "operations": kind.operations,
            "sequential": kind.sequential,
            "path": kind.path,
            "in_length": _growth(by_length(points, kind.name, width)),
            "paper_in_length": kind.in_length,
            "in_width": _growth(by_width(points, kind.name, length)),
            "paper_in_width": kind.in_width,
        }
        for kind in KINDS
    ]
    crossings = {kind.name: _crossing(points, KINDS[0].name, kind.name, width) for kind in KINDS[1:]}
    return {"width": width, "length": length, "rows": rows, "self_attention_is_slower_from": crossings}


def _crossing(points: Sequence[Point], first: str, second: str, width: int) -> float | None:
    """From which length on the first kind takes longer, by those that both were measured at."""
    one, other = dict(by_length(points, first, width)), dict(by_length(points, second, width))
    sizes = [size for size in one if size in other]
    if not sizes:
        return None
    return crossing(sizes, [one[size] for size in sizes], [other[size] for size in sizes])


def _growth(measured: Sequence[tuple[int, float]]) -> float | None:
    last = measured[-UPPER:]
    if len(last) < 2:
        return None
    return round(growth([size for size, _ in last], [seconds for _, seconds in last]), 2)


def as_text(points: Sequence[Point], summary: dict[str, Any]) -> str:
    """The table beside the paper's, and the times."""
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
        f"{'n':>8}" + "".join(f"{kind.name:>16}" for kind in KINDS),
    ]
    table = {(one.kind, one.length, one.width): one.seconds for one in points}
    for n in sorted({one.length for one in points if one.width == width}):
        lines.append(f"{n:>8}" + "".join(f"{_ms(table.get((kind.name, n, width))):>16}" for kind in KINDS))
    lines += ["", f"milliseconds at n = {length}", f"{'d':>8}" + "".join(f"{kind.name:>16}" for kind in KINDS)]
    for d in sorted({one.width for one in points if one.length == length}):
        lines.append(f"{d:>8}" + "".join(f"{_ms(table.get((kind.name, length, d))):>16}" for kind in KINDS))
    lines.append("")
    for name, place in summary["self_attention_is_slower_from"].items():
        where = "at no length measured" if place is None else f"from n = {place:,.0f} on"
        lines.append(f"self-attention takes longer than {name} {where}")
    return "\n".join(lines)


def _exponent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"


def as_data(points: Sequence[Point], summary: dict[str, Any], machine: dict[str, Any]) -> dict[str, Any]:
    """Everything, for a file."""
    return {"benchmark": "table1", "machine": machine, **summary, "points": [asdict(one) for one in points]}


def draw(points: Sequence[Point], summary: dict[str, Any], path: Path) -> None:
    """Time against length and against width, on logarithmic axes."""
    matplotlib = require("matplotlib", extra="plots")
    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5))
    for kind in KINDS:
        lengths, widths = by_length(points, kind.name, summary["width"]), by_width(points, kind.name, summary["length"])
        left.plot(*zip(*lengths, strict=True), marker="o", label=f"{kind.name}, {kind.operations}")
        right.plot(*zip(*widths, strict=True), marker="o", label=kind.name)
    left.set_xlabel(f"tokens n, at d = {summary['width']}")
    right.set_xlabel(f"width d, at n = {summary['length']}")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_ylabel("seconds a layer, forward")
        axes.grid(alpha=0.3)
    left.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})

"""Table 1 of the paper, measured: the time of one layer of each kind against length and width.

One sequence of n tokens of width d passes forward through one layer. Self-attention is measured without projections, as the
paper counts it. The recurrent layer is a GRU, the convolution has a kernel of three, and restricted attention has a window.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.ragged import Layout
from regard.errors import require
from regard.nn.attend import AttentionMask, attend
from regard.nn.convolution import Convolution
from regard.nn.dropout import Noise
from regard.nn.recurrent import Recurrent, TimeOrder

HEAD = 64  # width of a head
NOISE = math.log(1.2)  # differences up to this factor are noise
KERNEL, WINDOW = 3, 64

ForwardPass = Callable[[], Tensor]
FITTED_SIZES = 3  # exponents are fitted to the largest sizes, because small ones measure overhead


@dataclass(frozen=True)
class LayerKind:
    """A row of the table: the complexities as the paper writes them, and their exponents of n and d."""

    name: str
    operations: str
    sequential: str
    path: str
    in_length: int
    in_width: int
    build: Callable[[int, int, torch.device], ForwardPass]
    count: Callable[[int, int], int]  # floating-point operations
    steps: Callable[[int], int]  # sequential operations
    hops: Callable[[int], int]  # length of the longest path between two tokens


def _attention(window: int | None) -> Callable[[int, int, torch.device], ForwardPass]:
    def build(n: int, d: int, device: torch.device) -> ForwardPass:
        x = torch.randn(n, max(1, d // HEAD), min(d, HEAD), device=device, dtype=_precision(device))
        mask = AttentionMask(Layout([n], device), window=window)
        return lambda: attend(x, x, x, mask)

    return build


def _recurrent(n: int, d: int, device: torch.device) -> ForwardPass:
    layer = Recurrent("gru", d, d, 1, dropout=0.0, noise=Noise()).to(device, _precision(device))
    x, order = torch.randn(n, d, device=device, dtype=_precision(device)), TimeOrder(Layout([n], device))
    return lambda: layer(x, order)


def _convolution(n: int, d: int, device: torch.device) -> ForwardPass:
    layer = Convolution(d, d, KERNEL, causal=False).to(device, _precision(device))
    x, layout = torch.randn(n, d, device=device, dtype=_precision(device)), Layout([n], device)
    return lambda: layer(x, layout)


def _precision(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


LAYERS = [
    LayerKind(
        "self-attention", "n²·d", "1", "1", 2, 1, _attention(None),
        lambda n, d: 4 * n * n * d, lambda n: 1, lambda n: 1,
    ),
    LayerKind("recurrent", "n·d²", "n", "n", 1, 2, _recurrent, lambda n, d: 12 * n * d * d, lambda n: n, lambda n: n),
    LayerKind(
        "convolutional", "k·n·d²", "1", "log_k(n)", 1, 2, _convolution,
        lambda n, d: 2 * KERNEL * n * d * d, lambda n: 1, lambda n: max(1, math.ceil(math.log(n, KERNEL))),
    ),
    LayerKind(
        "restricted", "r·n·d", "1", "n/r", 1, 1, _attention(WINDOW),
        lambda n, d: 4 * n * min(n, 2 * WINDOW + 1) * d, lambda n: 1, lambda n: max(1, math.ceil(n / WINDOW)),
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Measurement:
    """The time of one layer at one size."""

    kind: str
    length: int
    width: int
    seconds: float
    operations: int
    sequential: int
    path: int


@torch.inference_mode()
def measure(layer: LayerKind, length: int, width: int, device: torch.device, *, seconds: float = 0.2) -> Measurement:
    """Return the median time of a forward pass. Passes are repeated for `seconds`, and at least three times."""
    run = layer.build(length, width, device)
    for _ in range(2):
        run()
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        _wait(device)
        began = time.perf_counter()
        run()
        _wait(device)
        times.append(time.perf_counter() - began)
    return Measurement(
        layer.name, length, width, statistics.median(times),
        layer.count(length, width), layer.steps(length), layer.hops(length),
    )  # fmt: skip


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def growth(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the exponent a of seconds ≈ c·size^a, by least squares on the logarithms."""
    x, y = [math.log(size) for size in sizes], [math.log(one) for one in seconds]
    mean_x, mean_y = statistics.mean(x), statistics.mean(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


def crossing(sizes: Sequence[int], first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the size from which the first takes longer than the second, interpolated; None if it never does.

    Differences of less than 20 % are ignored: two measurements of one layer can differ by as much.
    """
    gaps = [math.log(a / b) for a, b in zip(first, second, strict=True)]
    if gaps[-1] <= NOISE:
        return None
    at = max((number for number, gap in enumerate(gaps) if gap <= NOISE), default=-1) + 1
    if at == 0:
        return float(sizes[0])
    before, after = gaps[at - 1 : at + 1]
    met = NOISE if before > 0 else 0.0
    share = (before - met) / (before - after)
    return float(math.exp((1 - share) * math.log(sizes[at - 1]) + share * math.log(sizes[at])))


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

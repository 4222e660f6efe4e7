"""Measurement of Table 1 of the paper: the time of one layer of each kind against length and width.

One sequence of n tokens of width d passes forward through one layer. Self-attention is measured without projections, as the
paper counts it. The recurrent layer is a GRU, the convolution has a kernel of three, and restricted attention has a window.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.data.ragged import Layout
from regard.nn.attend import AttentionMask, attend
from regard.nn.convolution import Convolution
from regard.nn.dropout import Noise
from regard.nn.recurrent import Recurrent, TimeOrder

HEAD = 64  # width of a head
NOISE = math.log(1.2)  # differences up to this factor are noise
KERNEL, WINDOW = 3, 64

ForwardPass = Callable[[], Tensor]


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

"""The paper's own pictures, drawn from the running code: positions, the learning rate, masks."""

from __future__ import annotations

from pathlib import Path

import torch

from regard.data.ragged import Layout
from regard.explain.figures import pyplot
from regard.nn.attend import AttentionMask
from regard.nn.positions import sinusoids
from regard.training.schedules import noam

CPU = torch.device("cpu")


def draw_positions(path: Path, *, width: int = 128, length: int = 100) -> None:
    """The sinusoids of section 3.5, and how the product of two of them falls with their distance."""
    plt = pyplot()
    table = sinusoids(length, width)
    products = (table @ table.T / width).numpy()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    image = left.imshow(table.numpy(), cmap="RdBu", aspect="auto", vmin=-1, vmax=1)
    left.set(xlabel="dimension", ylabel="position", title=f"PE(pos, i), width {width}")
    figure.colorbar(image, ax=left)
    middle = length // 2
    for start in (0, middle // 2, middle):
        right.plot(range(-start, length - start), products[start], label=f"position {start}")
    right.set(xlabel="distance", ylabel="product / width", title="PE(a) · PE(b) depends on b - a alone")
    right.legend()
    figure.savefig(path, bbox_inches="tight", dpi=160)
    plt.close(figure)


def draw_schedule(path: Path, *, steps: int = 100_000) -> None:
    """The learning rate of section 5.3 for several warm-ups and widths."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(7, 4))
    at = range(1, steps + 1, max(1, steps // 2000))
    for width, warm_up in ((512, 4000), (512, 8000), (256, 4000)):
        axes.plot(at, [noam(step, width=width, warmup=warm_up) for step in at], label=f"{width}:{warm_up}")
    axes.set(xlabel="step", ylabel="learning rate", title="lrate = width^-0.5 · min(step^-0.5, step · warm-up^-1.5)")
    axes.legend(title="width : warm-up")
    figure.savefig(path, bbox_inches="tight", dpi=160)
    plt.close(figure)


def draw_masks(path: Path, *, length: int = 16, window: int = 3) -> None:
    """Who may look at whom: all at all, at the past only, at what is near."""
    plt = pyplot()
    layout = Layout([length], CPU)
    patterns = {
        "encoder": AttentionMask(layout),
        "decoder (no looking ahead)": AttentionMask(layout, causal=True),
        f"encoder, window {window}": AttentionMask(layout, window=window),
        f"decoder, window {window}": AttentionMask(layout, causal=True, window=window),
    }
    figure, panels = plt.subplots(1, len(patterns), figsize=(3 * len(patterns), 3.2))
    for axes, (name, mask) in zip(panels, patterns.items(), strict=True):
        allowed = mask.allowed(length, length)
        seen = torch.ones(length, length) if allowed is None else allowed.float()
        axes.imshow(seen.numpy(), cmap="Oranges", vmin=0, vmax=1.3)
        axes.set(title=name, xlabel="key", ylabel="query")
    figure.tight_layout()
    figure.savefig(path, bbox_inches="tight", dpi=160)
    plt.close(figure)

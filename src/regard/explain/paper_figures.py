"""Figures of the paper drawn from the running code: its position encodings, learning rate and attention masks."""

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
    """Draw the sinusoids of section 3.5, and the product of two of them against their distance."""
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
    right.set(xlabel="distance", ylabel="product / width", title="PE(a) · PE(b) depends only on b - a")
    right.legend()
    figure.savefig(path, bbox_inches="tight", dpi=160)
    plt.close(figure)


def draw_schedule(path: Path, *, steps: int = 100_000) -> None:
    """Draw the learning rate of section 5.3 for several widths and warm-up lengths."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(7, 4))
    at = range(1, steps + 1, max(1, steps // 2000))
    for width, warmup in ((512, 4000), (512, 8000), (256, 4000)):
        axes.plot(at, [noam(step, width=width, warmup=warmup) for step in at], label=f"{width}:{warmup}")
    axes.set(xlabel="step", ylabel="learning rate", title="lrate = width^-0.5 · min(step^-0.5, step · warmup^-1.5)")
    axes.legend(title="width : warmup")
    figure.savefig(path, bbox_inches="tight", dpi=160)
    plt.close(figure)


def draw_masks(path: Path, *, length: int = 16, window: int = 3) -> None:
    """Draw which keys each query may attend to: encoder and decoder, with and without a window."""
    plt = pyplot()
    layout = Layout([length], CPU)
    masks = {
        "encoder": AttentionMask(layout),
        "decoder (causal)": AttentionMask(layout, causal=True),
        f"encoder, window {window}": AttentionMask(layout, window=window),
        f"decoder, window {window}": AttentionMask(layout, causal=True, window=window),
    }
    figure, panels = plt.subplots(1, len(masks), figsize=(3 * len(masks), 3.2))
    for axes, (name, mask) in zip(panels, masks.items(), strict=True):
        allowed = mask.allowed(length, length)
        visible = torch.ones(length, length) if allowed is None else allowed.float()
        axes.imshow(visible.numpy(), cmap="Oranges", vmin=0, vmax=1.3)
        axes.set(title=name, xlabel="key", ylabel="query")
    figure.tight_layout()
    figure.savefig(path, bbox_inches="tight", dpi=160)
    plt.close(figure)

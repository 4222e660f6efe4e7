"""Pictures of heads: a grid of layers and heads per kind of attention, and curves of pruning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from regard.explain.figures import COLOURS, GREY, pyplot
from regard.explain.head_gates import KINDS, Head
from regard.explain.head_importance import PruningPoint


def draw_heads(path: Path, measures: Mapping[str, Mapping[Head, float]]) -> None:
    """Draw one row of grids per measure: a grid per kind of attention, layers from top to bottom.

    A measure with negative values has colours of two hues, with white at 0; one without has shades of grey.
    """
    plt = pyplot()
    kinds = [kind for kind in KINDS if any(head.attention == kind for measure in measures.values() for head in measure)]
    size = (3.2 * len(kinds) + 1, 3.2 * len(measures))
    figure, panels = plt.subplots(len(measures), len(kinds), figsize=size, squeeze=False, layout="constrained")
    for row, (title, measure) in zip(panels, measures.items(), strict=True):
        largest, signed = max(map(abs, measure.values())) or 1.0, min(measure.values()) < 0
        shades = {"cmap": "RdBu_r", "vmin": -largest} if signed else {"cmap": "Greys", "vmin": 0.0}
        for axes, kind in zip(row, kinds, strict=True):
            if not any(head.attention == kind for head in measure):
                axes.axis("off")
                continue
            grid = grid_of(measure, kind)
            image = axes.imshow(grid, vmax=largest, aspect="auto", **shades)
            for (layer, head), value in np.ndenumerate(grid):
                colour = "white" if abs(value) > 0.6 * largest else "black"
                axes.text(
                    head,
                    layer,
                    f"{value:.{3 if largest < 1 else 2}f}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color=colour,
                )
            axes.set(title=kind, xlabel="head", ylabel="layer")
            axes.set_xticks(range(grid.shape[1]), range(1, grid.shape[1] + 1))
            axes.set_yticks(range(grid.shape[0]), range(1, grid.shape[0] + 1))
        figure.colorbar(image, ax=list(row), shrink=0.9, label=title)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def grid_of(measure: Mapping[Head, float], kind: str) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return the values of a kind of attention: [layers, heads]; NaN where there is no head."""
    heads = [head for head in measure if head.attention == kind]
    grid = np.full((max(head.layer for head in heads), max(head.head for head in heads)), np.nan)
    for head in heads:
        grid[head.layer - 1, head.head - 1] = measure[head]
    return grid


def draw_pruning(path: Path, curves: Mapping[str, Sequence[PruningPoint]]) -> None:
    """Draw BLEU, if it was computed, and the loss against the number of heads that are removed, a curve per order."""
    plt = pyplot()
    has_bleu = all(point.bleu is not None for points in curves.values() for point in points)
    figure, both = plt.subplots(1, 1 + has_bleu, figsize=(5 * (1 + has_bleu), 4), squeeze=False)
    left, right = both[0, 0], both[0, -1]
    for colour, (name, points) in zip([*COLOURS[:2], GREY], curves.items(), strict=False):
        style = {"label": name, "color": colour, "marker": "o", "markersize": 4}
        removed = [point.removed for point in points]
        if has_bleu:
            left.plot(removed, [point.bleu for point in points], **style)
        right.plot(removed, [point.loss for point in points], **style)
    if has_bleu:
        left.set(xlabel="heads removed", ylabel="BLEU")
    right.set(xlabel="heads removed", ylabel="loss per target token")
    right.legend(title="order", frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)

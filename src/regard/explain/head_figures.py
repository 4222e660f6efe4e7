"""Pictures of head importance: a grid of layers and heads per kind of attention, and curves of pruning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from regard.explain.figures import COLOURS, GREY, pyplot
from regard.explain.head_gates import KINDS
from regard.explain.head_importance import Importance, PruningPoint


def draw_importance(path: Path, importances: Mapping[str, Importance]) -> None:
    """Draw one row of grids per way of measuring: a grid per kind of attention, layers from top to bottom."""
    plt = pyplot()
    first = next(iter(importances.values()))
    kinds = [kind for kind in KINDS if any(head.attention == kind for head in first)]
    size = (3.2 * len(kinds) + 1, 3.2 * len(importances))
    figure, panels = plt.subplots(len(importances), len(kinds), figsize=size, squeeze=False, layout="constrained")
    for row, (title, importance) in zip(panels, importances.items(), strict=True):
        largest = max(map(abs, importance.values())) or 1.0
        for axes, kind in zip(row, kinds, strict=True):
            grid = grid_of(importance, kind)
            image = axes.imshow(grid, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto")
            for (layer, head), value in np.ndenumerate(grid):
                colour = "white" if abs(value) > 0.6 * largest else "black"
                axes.text(head, layer, f"{value:.3f}", ha="center", va="center", fontsize=8, color=colour)
            axes.set(title=kind, xlabel="head", ylabel="layer")
            axes.set_xticks(range(grid.shape[1]), range(1, grid.shape[1] + 1))
            axes.set_yticks(range(grid.shape[0]), range(1, grid.shape[0] + 1))
        figure.colorbar(image, ax=list(row), shrink=0.9, label=title)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def grid_of(importance: Importance, kind: str) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return the importances of a kind of attention: [layers, heads]; NaN where there is no head."""
    heads = [head for head in importance if head.attention == kind]
    grid = np.full((max(head.layer for head in heads), max(head.head for head in heads)), np.nan)
    for head in heads:
        grid[head.layer - 1, head.head - 1] = importance[head]
    return grid


def draw_pruning(path: Path, curves: Mapping[str, Sequence[PruningPoint]]) -> None:
    """Draw BLEU and the loss against the number of heads that are removed, a curve per order."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    for colour, (name, points) in zip([*COLOURS[:2], GREY], curves.items(), strict=False):
        style = {"label": name, "color": colour, "marker": "o", "markersize": 4}
        removed = [point.removed for point in points]
        left.plot(removed, [point.bleu for point in points], **style)
        right.plot(removed, [point.loss for point in points], **style)
    left.set(xlabel="heads removed", ylabel="BLEU")
    right.set(xlabel="heads removed", ylabel="loss per target token")
    right.legend(title="order", frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)

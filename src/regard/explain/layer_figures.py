"""A picture of how similar layers are: a heatmap for the encoder and one for the decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from regard.explain.figures import pyplot

SMALL = 12  # as many layers have their values written into the heatmap


def draw_similarity(path: Path, similarity: Mapping[str, Sequence[Sequence[float]]], names: tuple[str, str]) -> None:
    """Draw the similarity of every layer of the first run (down) with every layer of the second (across), from 0 to 1."""
    plt = pyplot()
    figure, panels = plt.subplots(1, len(similarity), figsize=(4.6 * len(similarity) + 0.6, 4.2), layout="constrained")
    for axes, (stack, grid) in zip(panels, similarity.items(), strict=True):
        image = axes.imshow(grid, cmap="Greys", vmin=0.0, vmax=1.0, origin="lower")
        if max(len(grid), len(grid[0])) <= SMALL:
            for row, values in enumerate(grid):
                for column, value in enumerate(values):
                    colour = "white" if value > 0.6 else "black"
                    axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
        axes.set(title=stack, xlabel=f"layer of {names[1]}", ylabel=f"layer of {names[0]}")
        axes.set_xticks(range(len(grid[0])))
        axes.set_yticks(range(len(grid)))
    figure.colorbar(image, ax=list(panels), shrink=0.9, label="linear CKA")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)

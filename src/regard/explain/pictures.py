"""Pictures of what a matrix of weights cannot show: transitions between labels, copied words, attention to an image.

Shapes: L labels, Q outputs, K source tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.explain.attention import AttentionWeights, Axis, display_token
from regard.text.images import Pixels

MOST_TOKENS = 60  # of the source in the picture of copying: those that are copied most
PER_ROW = 8  # panels of an image
COLOUR = (255, 120, 0)  # where attention is
DIM = 0.25  # brightness of pixels without attention


@dataclass(frozen=True)
class Picture:
    """A drawing of a task's own."""

    name: str
    draw: Callable[[Any], Any]  # takes matplotlib.pyplot and returns a figure


def transition_picture(scores_LL: AttentionWeights, labels: Sequence[str]) -> Picture:
    """Return a picture of the scores: a row per label, a column per label that follows it."""

    def draw(plt: Any) -> Any:
        size = max(3.0, 0.32 * len(labels) + 1.5)
        figure, axes = plt.subplots(figsize=(size, size))
        most = float(np.abs(scores_LL).max()) or 1.0
        image = axes.imshow(scores_LL, cmap="RdBu_r", vmin=-most, vmax=most)
        axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=8)
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        axes.set_xlabel("next label")
        axes.set_ylabel("label")
        axes.set_title("transition scores")
        figure.colorbar(image, ax=axes, shrink=0.8)
        return figure

    return Picture("transitions", draw)


# Copying


def draw_copying(plt: Any, gate_Q: AttentionWeights, copied_QK: AttentionWeights, source: Axis, target: Axis) -> Any:
    """Return a figure: the share of the vocabulary (p_gen) in the first column, then the share of each source token."""
    columns = np.sort(np.argsort(-copied_QK.max(axis=0), kind="stable")[:MOST_TOKENS])
    grid = np.concatenate([gate_Q[:, None], copied_QK[:, columns]], axis=1)
    names = ["vocabulary", *(display_token(source.tokens[column]) for column in columns)]
    figure, axes = plt.subplots(figsize=(2 + 0.28 * len(names), 1.5 + 0.28 * len(target.tokens)))
    axes.imshow(grid, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.axvline(0.5, color="black", linewidth=0.8)
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(target.tokens)), [display_token(token) for token in target.tokens])
    axes.set_xlabel("from the vocabulary (p_gen), or copied from the source")
    axes.set_ylabel(target.label)
    figure.tight_layout()
    return figure


# Attention to an image


def draw_attention(plt: Any, pixels: Pixels, words: Sequence[str], weights: AttentionWeights) -> Any:
    """Return a figure with the image, and one copy per word. `weights` are those of each patch: [words, rows, columns]."""
    panels = 1 + len(words)
    down = -(-panels // PER_ROW)
    across = -(-panels // down)
    figure, axes = plt.subplots(down, across, figsize=(1.7 * across, 1.95 * down), squeeze=False)
    for one in axes.flat:
        one.axis("off")
    axes.flat[0].imshow(pixels)
    axes.flat[0].set_title("image", fontsize=9, color="#5b606b")
    for one, word, weight in zip(axes.flat[1:], words, weights, strict=False):
        one.imshow(overlay(pixels, weight))
        one.set_title(display_token(word), fontsize=11)
    return figure


def overlay(pixels: Pixels, weights: AttentionWeights) -> Pixels:
    """Return the image with its patches lit by their weights: the largest fully, one without weight hardly."""
    rows, columns = weights.shape
    strength = np.kron(
        weights / max(float(weights.max()), 1e-9), np.ones((len(pixels) // rows, pixels.shape[1] // columns))
    )
    lit = pixels * (DIM + (1 - DIM) * strength[..., None]) + 0.35 * strength[..., None] * np.array(COLOUR)
    return lit.clip(0, 255).astype(np.uint8)

"""What a model attends to in a picture: one panel per word of the caption, with the weights of the patches over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.explain.attention import AttentionWeights, display_token
from regard.text.pictures import Pixels

PER_ROW = 8  # panels
COLOUR = (255, 120, 0)  # where attention is
DIM = 0.25  # brightness of pixels without attention


def draw_attention(plt: Any, pixels: Pixels, words: Sequence[str], weights: AttentionWeights) -> Any:
    """Return a figure with the picture, and one copy per word. `weights` are those of each patch: [words, rows, columns]."""
    panels = 1 + len(words)
    down = -(-panels // PER_ROW)
    across = -(-panels // down)
    figure, axes = plt.subplots(down, across, figsize=(1.7 * across, 1.95 * down), squeeze=False)
    for one in axes.flat:
        one.axis("off")
    axes.flat[0].imshow(pixels)
    axes.flat[0].set_title("picture", fontsize=9, color="#5b606b")
    for one, word, weight in zip(axes.flat[1:], words, weights, strict=False):
        one.imshow(overlay(pixels, weight))
        one.set_title(display_token(word), fontsize=11)
    return figure


def overlay(pixels: Pixels, weights: AttentionWeights) -> Pixels:
    """Return the picture with its patches lit by their weights: the largest fully, one without weight hardly."""
    rows, columns = weights.shape
    strength = np.kron(
        weights / max(float(weights.max()), 1e-9), np.ones((len(pixels) // rows, pixels.shape[1] // columns))
    )
    lit = pixels * (DIM + (1 - DIM) * strength[..., None]) + 0.35 * strength[..., None] * np.array(COLOUR)
    return lit.clip(0, 255).astype(np.uint8)

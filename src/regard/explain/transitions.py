"""The transition scores of a conditional random field as a picture: which label follows which.

Shapes: L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.explain.attention import AttentionWeights
from regard.explain.trace import Picture


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

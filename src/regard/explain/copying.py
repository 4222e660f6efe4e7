"""A picture of copying: for each output token, how much comes from the vocabulary and how much from which source token."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.explain.attention import AttentionWeights, Axis, display_token
from regard.models.base import Model
from regard.nn.attention_log import AttentionLog
from regard.nn.copying import Copying

MOST_TOKENS = 60  # of the source in the picture: those that are copied most


def copied_shares(model: Model, log: AttentionLog) -> tuple[AttentionWeights, AttentionWeights] | None:
    """Return p_gen of each output token, [Q], and the probability of copying each source token, [Q, K].

    The log is that of one sentence. None if the model does not copy.
    """
    module = next((one for one in model.modules() if isinstance(one, Copying) and one in log.calls), None)
    if module is None:
        return None
    gate = log.gates[-1][0].float().cpu().numpy()
    weights = log.calls[module][-1][0][0].float().cpu().numpy()
    return gate, (1 - gate[:, None]) * weights


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

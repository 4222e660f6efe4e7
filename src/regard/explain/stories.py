"""Pictures of a model that reads a story: what each sentence changed in memory, and what the answer read.

Shapes: T sentences, J slots, N words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.explain.attention import AttentionWeights, mean_over_heads
from regard.explain.pictures import Picture
from regard.explain.trace import Trace

GREY = "#5b606b"


def story_pictures(trace: Trace, question: str, lengths: Sequence[int]) -> tuple[Picture, ...]:
    """Return the picture of a memory of slots if the model has one, else that of the words that the question attends to.

    `lengths` are the numbers of words of the sentences, the question last.
    """
    if trace.layers("gates"):
        return (Picture("slots", lambda plt: draw_slots(plt, trace, question)),)
    if trace.layers("encoder"):
        return (Picture("words", lambda plt: draw_words(plt, trace, question, lengths)),)
    return ()


def draw_slots(plt: Any, trace: Trace, question: str) -> Any:
    """Draw the gate of every slot at every sentence, and below it how much of the answer comes from each slot."""
    gates_TJ, answer_1J = (mean_over_heads(trace.layers(name)[0].weights) for name in ("gates", "answer"))
    sentences = trace.axes["sentences"].tokens
    T, J = gates_TJ.shape
    figure, (upper, lower) = plt.subplots(
        2, 1, figsize=(2 + 0.3 * J, 1.6 + 0.3 * T), height_ratios=[T, 1.2], sharex=True, layout="constrained"
    )
    _panel(upper, gates_TJ, sentences)
    _panel(lower, answer_1J, [f"{question} {trace.target.text}"])
    upper.set_title("gate of each slot at each sentence", fontsize=9, color=GREY)
    lower.set_title("attention of the answer", fontsize=9, color=GREY)
    lower.set_xticks(range(J), trace.axes["slots"].tokens)
    lower.set_xlabel("slot", fontsize=9, color=GREY)
    return figure


def draw_words(plt: Any, trace: Trace, question: str, lengths: Sequence[int]) -> Any:
    """Draw for each layer how much the words of the question attend to each word, with one sentence per row."""
    layers = [mean_over_heads(one.weights) for one in trace.layers("encoder")]
    words, ends = trace.source.tokens, np.cumsum(lengths)
    weights_LN = np.stack([layer[ends[-1] - lengths[-1] :].mean(axis=0) for layer in layers])
    figure, panels = plt.subplots(
        1,
        len(layers),
        figsize=(len(layers) * (1 + 0.75 * max(lengths)), 1 + 0.3 * len(lengths)),
        squeeze=False,
        layout="constrained",
    )
    for number, (axes, weights_N) in enumerate(zip(panels[0], weights_LN, strict=True), start=1):
        table = np.full((len(lengths), max(lengths)), np.nan, dtype=np.float32)
        for row, (end, length) in enumerate(zip(ends, lengths, strict=True)):
            table[row, :length] = weights_N[end - length : end]
            for place, word in enumerate(words[end - length : end]):
                dark = table[row, place] > 0.6 * weights_N.max()
                axes.text(place, row, word, ha="center", va="center", fontsize=7, color="white" if dark else "black")
        axes.imshow(table, cmap="magma_r", vmin=0.0, aspect="auto")
        axes.set_title(f"layer {number}", fontsize=9, color=GREY)
        axes.set_xticks([])
        axes.set_yticks([])
    figure.suptitle(f"attention of the question: {question} {trace.target.text}", fontsize=9, color=GREY)
    return figure


def _panel(axes: Any, weights: AttentionWeights, rows: list[str]) -> None:
    axes.imshow(weights, cmap="magma_r", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)

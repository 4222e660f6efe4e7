"""A constituency tree over its words, and below it the attention from each opening bracket to the words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.explain.attention import AttentionWeights
from regard.text.trees import Constituent, Tree

GREY, INK = "#9aa0a8", "#1f2933"
LETTER = 0.11  # width of a letter, in inches
WORD_GAP = 0.35


def draw_tree(plt: Any, tree: Tree, words: Sequence[str], weights: AttentionWeights | None) -> Any:
    """Return a figure of the tree. `weights` are those of each output token to each word: [tokens, words + 1 (EOS)].

    Without weights, as for a model without attention, the tree is drawn alone.
    """
    places = _word_places(words)
    heights = _heights(tree)
    rows = [number for number, one in enumerate(tree.constituents) if weights is not None and one.token >= 0]
    width = max(3.0, places[-1] + 1.0)
    tall, below = 0.45 * (max(heights) + 1), 0.19 * max(len(rows), 1)
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(width, tall + below), gridspec_kw={"height_ratios": [tall, below], "hspace": 0.02}, sharex=True
    )
    _draw_brackets(top, tree, words, places, heights)
    bottom.axis("off")
    if weights is not None and rows:
        _draw_weights(
            bottom, [(tree.constituents[number], weights[tree.constituents[number].token]) for number in rows], places
        )
    top.set_xlim(-0.6, width - 0.2)
    return figure


def _word_places(words: Sequence[str]) -> list[float]:
    """Return the centre of each word, in inches from the left."""
    places, at = [], 0.0
    for word in words:
        wide = LETTER * max(2, len(word)) + WORD_GAP
        places.append(at + wide / 2)
        at += wide
    return places


def _heights(tree: Tree) -> list[int]:
    """Return the height of each constituent: one more than the highest inside it, words being 0."""
    heights = [1] * len(tree.constituents)
    # Whatever is inside a constituent follows it, before anything outside of it.
    stack: list[int] = []
    for number, one in enumerate(tree.constituents):
        while stack and tree.constituents[stack[-1]].end <= one.begin:
            stack.pop()
        stack.append(number)
        for above, outer in enumerate(reversed(stack)):
            heights[outer] = max(heights[outer], 1 + above)
    return heights


def _draw_brackets(axes: Any, tree: Tree, words: Sequence[str], places: list[float], heights: list[int]) -> None:
    def centre(one: Constituent) -> float:
        return (places[one.begin] + places[one.end - 1]) / 2

    # The innermost constituent of each word so far, so that lines lead to parents.
    parents = [-1] * tree.num_words
    for number, one in enumerate(tree.constituents):
        above = parents[one.begin]
        if above >= 0:
            outer = tree.constituents[above]
            axes.plot(
                [centre(outer), centre(one)], [heights[above], heights[number]], color=GREY, linewidth=0.9, zorder=1
            )
        parents[one.begin : one.end] = [number] * (one.end - one.begin)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
    for word, place, parent in zip(words, places, parents, strict=True):
        axes.plot([centre(tree.constituents[parent]), place], [heights[parent], 0], color=GREY, linewidth=0.9, zorder=1)
        axes.text(place, -0.15, word, ha="center", va="top", fontsize=10, color=INK)
    for one, height in zip(tree.constituents, heights, strict=True):
        axes.text(
            centre(one), height, one.label, ha="center", va="center", fontsize=9, color="#a3341c", bbox=box, zorder=2
        )
    axes.set_ylim(-0.9, max(heights) + 0.5)
    axes.axis("off")


def _draw_weights(axes: Any, rows: list[tuple[Constituent, AttentionWeights]], places: list[float]) -> None:
    """Draw one row per opening bracket, with a disc below each word whose area is the weight."""
    for row, (one, weights) in enumerate(rows):
        axes.text(-0.05, -row, f"({one.label}", ha="right", va="center", fontsize=7, color="#a3341c")
        sizes = [110 * float(weight) for weight in weights[: len(places)]]
        axes.scatter(places, [-row] * len(places), s=sizes, color="#1f6f8b", linewidths=0)
    axes.set_ylim(-len(rows) + 0.4, 0.6)

"""A picture of a document with two levels of attention: a bar per sentence, and words coloured by their weight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from regard.explain.pictures import Picture

LINE = 72  # characters per line; longer sentences take several
CHARACTER, HEIGHT = 0.095, 0.34  # inches
BAR = 14  # characters that the longest bar is wide
WORD_COLOUR, SENTENCE_COLOUR, GREY = "#c2410c", "#1f6f8b", "#5b606b"

Words = Sequence[tuple[str, float]]  # each with its weight within the sentence


def document_picture(sentences: Sequence[Words], weights: Sequence[float], label: str) -> Picture:
    """Return the picture of a document. `weights` are those of the sentences."""
    return Picture("document", lambda plt: _draw(plt, sentences, weights, label))


def shades(words: Words, sentence: float) -> list[float]:
    """Return how dark each word is drawn, from 0 to 1.

    A weight within a sentence counts by the square root of that of the sentence (as Yang et al. 2016 draw them), so that
    the words of sentences that do not matter stay light.
    """
    return [math.sqrt(sentence) * weight for _, weight in words]


def wrap(words: Words) -> list[list[int]]:
    """Return the numbers of the words on each line of a sentence."""
    lines: list[list[int]] = [[]]
    used = 0
    for number, (text, _) in enumerate(words):
        if lines[-1] and used + len(text) > LINE:
            lines.append([])
            used = 0
        lines[-1].append(number)
        used += len(text) + 1
    return lines


def _draw(plt: Any, sentences: Sequence[Words], weights: Sequence[float], label: str) -> Any:
    lines = [wrap(words) for words in sentences]
    rows = sum(map(len, lines))
    longest = max(
        sum(len(words[number][0]) + 1 for number in line)
        for words, own in zip(sentences, lines, strict=True)
        for line in own
    )
    width = BAR + 8 + max(longest, 40)
    figure, axes = plt.subplots(figsize=(CHARACTER * width, HEIGHT * (rows + 1)))
    axes.text(0, -0.6, "sentence attention", color=GREY, fontsize=8, va="center")
    axes.text(BAR + 8, -0.6, f"word attention; label: {label}", color=GREY, fontsize=8, va="center")
    darkest = max((shade for words, p in zip(sentences, weights, strict=True) for shade in shades(words, p)), default=1)
    row = 0
    for words, weight, own in zip(sentences, weights, lines, strict=True):
        axes.barh(row, BAR * weight, height=0.7, color=SENTENCE_COLOUR)
        axes.text(BAR * weight + 0.6, row, f"{weight:.2f}", color=SENTENCE_COLOUR, fontsize=8, va="center")
        dark = shades(words, weight)
        for line in own:
            at = BAR + 8.0
            for number in line:
                text = words[number][0]
                box = {"boxstyle": "square,pad=0.15", "linewidth": 0, "facecolor": WORD_COLOUR}
                box["alpha"] = 0.85 * dark[number] / (darkest or 1)
                axes.text(at, row, text, family="monospace", fontsize=9, va="center", bbox=box)
                at += len(text) + 1
            row += 1
    axes.set(xlim=(0, width), ylim=(rows - 0.4, -1.0))
    axes.axis("off")
    return figure

"""A trace as a picture for a paper: words in two rows with lines between them, or heatmaps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import DecodeError, require
from regard.explain.flow import mean_of_heads
from regard.explain.trace_types import Attention, Trace, Weights
from regard.explain.words import between_words, shown

FAINTEST = 0.05  # weights below are not drawn
COLOURS = ["#a3341c", "#1f6f8b", "#4d7c0f", "#7c3aed", "#b45309", "#0f766e", "#be185d", "#475569"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What of a trace to draw."""

    name: str | None = None  # the kind of attention; across where there is any, if not given
    layer: int | None = None  # from 1; the last if not given
    heads: tuple[int, ...] = ()  # from 1; the mean of all if not given
    word: str | None = None  # whose look is drawn; everybody's if not given
    heatmap: bool = False  # shades instead of lines


def draw(trace: Trace, path: Path, choice: Choice) -> None:
    """Draws one layer's attention between words into an SVG or PNG file."""
    attention = _chosen(trace, choice.name, choice.layer)
    queries, keys = getattr(trace, attention.queries), getattr(trace, attention.keys)
    weights = between_words(attention.weights, queries.words, keys.words)
    heads = choice.heads
    if not all(1 <= number <= len(weights) for number in heads):
        raise DecodeError(f"layer {attention.layer} has heads 1 to {len(weights)}; {list(heads)} were asked for")
    chosen = weights[[number - 1 for number in heads]] if heads else mean_of_heads(weights)[None]
    labels = [[_word(text.tokens, word) for word in text.words] for text in (queries, keys)]
    if choice.word is not None:
        if choice.word not in labels[0]:
            raise DecodeError(f"the word {choice.word!r} is not there; choose among {', '.join(labels[0])}")
        chosen = chosen * np.array([label == choice.word for label in labels[0]], dtype=np.float32)[:, None]
    title = f"{attention.name} attention, layer {attention.layer}, " + (
        f"heads {', '.join(map(str, heads))}" if heads else "mean of all heads"
    )
    plt = pyplot()
    figure = _heatmap(plt, chosen, labels, title) if choice.heatmap else _lines(plt, chosen, labels, heads, title)
    figure.savefig(path, bbox_inches="tight", dpi=160)
    plt.close(figure)


def pyplot() -> Any:
    """Matplotlib, without a window."""
    require("matplotlib", extra="plots")
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "regard", "font.size": 11, "axes.unicode_minus": False})
    import matplotlib.pyplot as plt

    return plt


def _chosen(trace: Trace, name: str | None, layer: int | None) -> Attention:
    if not trace.attentions:
        raise DecodeError("this model has no attention to draw")
    name = name or ("encoder-decoder" if trace.of("encoder-decoder") else trace.names[0])
    layers = trace.of(name)
    if not layers:
        raise DecodeError(f"there is no {name!r} attention in this model; choose among {', '.join(trace.names)}")
    if layer is not None and not 1 <= layer <= len(layers):
        raise DecodeError(f"layer is {layer}; {name} attention has layers 1 to {len(layers)}")
    return layers[-1 if layer is None else layer - 1]


def _word(tokens: list[str], word: list[int]) -> str:
    return shown("".join(tokens[index] for index in word))


def _lines(plt: Any, weights_HQK: Weights, labels: list[list[str]], heads: tuple[int, ...], title: str) -> Any:
    """Queries in the lower row, keys in the upper one."""
    places = [_spread(words) for words in labels]
    width = max(places[0][-1], places[1][-1]) + 1
    figure, axes = plt.subplots(figsize=(max(4.0, 0.115 * width), 2.6))
    for number, weights in enumerate(weights_HQK):
        colour = COLOURS[(heads[number] - 1 if heads else 0) % len(COLOURS)]
        for row, column in np.argwhere(weights >= FAINTEST):
            weight = float(weights[row, column])
            line = ([places[0][row], places[1][column]], [0.12, 0.88])
            axes.plot(
                *line, color=colour, linewidth=0.5 + 4 * weight, alpha=0.15 + 0.8 * weight, solid_capstyle="round"
            )
    for height, align, words, where in zip((0.06, 0.94), ("top", "bottom"), labels, places, strict=True):
        for word, place in zip(words, where, strict=True):
            axes.text(place, height, word, ha="center", va=align)
    axes.set_title(title, fontsize=9, color="#5b606b")
    axes.set(xlim=(-1, width), ylim=(-0.05, 1.05))
    axes.axis("off")
    return figure


def _spread(words: list[str]) -> list[float]:
    """The middle of each word, as far apart as their letters need."""
    places, at = [], 0.0
    for word in words:
        wide = max(2, len(word)) + 2
        places.append(at + wide / 2)
        at += wide
    return places


def _heatmap(plt: Any, weights_HQK: Weights, labels: list[list[str]], title: str) -> Any:
    across, down = 0.3 * len(labels[1]) + 1.5, 0.3 * len(labels[0]) + 1.5
    figure, panels = plt.subplots(1, len(weights_HQK), figsize=(across * len(weights_HQK), down), squeeze=False)
    for axes, weights in zip(panels[0], weights_HQK, strict=True):
        axes.imshow(weights, cmap="magma_r", vmin=0.0, vmax=1.0)
        axes.set_xticks(range(len(labels[1])), labels[1], rotation=60, ha="left", rotation_mode="anchor")
        axes.set_yticks(range(len(labels[0])), labels[0])
        axes.tick_params(top=True, bottom=False, labeltop=True, labelbottom=False, length=0)
    figure.suptitle(title, fontsize=9, color="#5b606b", y=0.02)
    return figure

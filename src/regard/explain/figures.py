"""Pictures of attention for a paper: words in two rows with lines between them, or a heatmap.

Shapes: H heads, Q queries, K keys.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import DecodeError, require
from regard.explain.attention import Attention, AttentionWeights, axis_labels, mean_over_heads, merge_words
from regard.explain.fonts import choose_fonts
from regard.explain.trace import Trace
from regard.messages import warn_caller

MIN_WEIGHT = 0.05  # smaller weights get no line
COLOURS = ["#a3341c", "#1f6f8b", "#4d7c0f", "#7c3aed", "#b45309", "#0f766e", "#be185d", "#475569"]
GREY = "#5b606b"


@dataclass(frozen=True, kw_only=True)
class FigureOptions:
    """Which part of a trace to draw, and how."""

    # The kind of attention, or a picture; None: the first picture, or else attention between two sequences if there is any.
    name: str | None = None
    layer: int | None = None  # counted from 1; None: the last
    heads: tuple[int, ...] = ()  # counted from 1; empty: the mean over all heads
    word: str | None = None  # draw only the attention of this query word; None: of all words
    heatmap: bool = False  # a heatmap instead of lines


@dataclass(frozen=True)
class WordAxis:
    """An axis as it is drawn."""

    label: str
    words: list[str]


def draw(trace: Trace, path: Path, options: FigureOptions, *, warn: Callable[[str], None] = warn_caller) -> None:
    """Draw a picture of the trace's own, or the attention of one layer between words, into an SVG or PNG file."""
    if options.name in {None, *(picture.name for picture in trace.pictures)} and trace.pictures:
        chosen = next((one for one in trace.pictures if one.name == options.name), trace.pictures[0])
        plt = pyplot()
        figure = chosen.draw(plt)
        _save(plt, figure, path, warn)
        return
    attention = _select(trace, options.name, options.layer)
    queries, keys = trace.axes_of(attention)
    weights = merge_words(attention.weights, queries.words, keys.words)
    heads = options.heads
    if not all(1 <= number <= len(weights) for number in heads):
        raise DecodeError(f"layer {attention.layer} has heads 1 to {len(weights)}; {list(heads)} were asked for")
    selected = weights[[number - 1 for number in heads]] if heads else mean_over_heads(weights)[None]
    labels = axis_labels(queries, keys)
    rows, columns = WordAxis(labels[0], queries.word_texts), WordAxis(labels[1], keys.word_texts)
    if options.word is not None:
        if options.word not in rows.words:
            raise DecodeError(f"there is no word {options.word!r}; choose one of {', '.join(rows.words)}")
        selected = selected * np.array([word == options.word for word in rows.words], dtype=np.float32)[:, None]
    title = f"{attention.name} attention, layer {attention.layer}, " + (
        f"head{'s' if len(heads) > 1 else ''} {', '.join(map(str, heads))}" if heads else "mean over all heads"
    )
    plt = pyplot()
    if options.heatmap:
        figure = _heatmap(plt, selected, rows, columns, title)
    else:
        figure = _lines(plt, selected, rows, columns, heads, title)
    _save(plt, figure, path, warn)


def _save(plt: Any, figure: Any, path: Path, warn: Callable[[str], None]) -> None:
    with warnings.catch_warnings():
        if not choose_fonts(figure, warn=warn):
            warnings.filterwarnings("ignore", message="Glyph")  # matplotlib has a warning per character too
        figure.savefig(path, bbox_inches="tight", dpi=160)
    plt.close(figure)


def pictures_as_svg(trace: Trace) -> dict[str, str]:
    """Return the trace's own pictures as SVG documents, by name; none if matplotlib is not installed."""
    if not trace.pictures or find_spec("matplotlib") is None:
        return {}
    plt, drawn = pyplot(), {}
    for picture in trace.pictures:
        figure, text = picture.draw(plt), io.StringIO()
        choose_fonts(figure)
        figure.savefig(text, bbox_inches="tight", format="svg")
        plt.close(figure)
        drawn[picture.name] = text.getvalue()
    return drawn


def pyplot() -> Any:
    """Return matplotlib.pyplot with a backend that opens no window."""
    require("matplotlib", extra="plots")
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "regard", "font.size": 11, "axes.unicode_minus": False})
    import matplotlib.pyplot as plt

    return plt


def _select(trace: Trace, name: str | None, layer: int | None) -> Attention:
    if not trace.attentions:
        raise DecodeError("this model has no attention to draw")
    name = name or trace.main_name
    layers = trace.layers(name)
    if not layers:
        known = ", ".join([*(picture.name for picture in trace.pictures), *trace.names])
        raise DecodeError(f"this model has no {name!r} attention; choose one of {known}")
    if layer is not None and not 1 <= layer <= len(layers):
        raise DecodeError(f"layer is {layer}; {name} attention has layers 1 to {len(layers)}")
    return layers[-1 if layer is None else layer - 1]


def _lines(
    plt: Any, weights_HQK: AttentionWeights, rows: WordAxis, columns: WordAxis, heads: tuple[int, ...], title: str
) -> Any:
    """Draw the queries in the lower row, the keys in the upper row, and a line for each weight."""
    places = [_word_centres(axis.words) for axis in (rows, columns)]
    width = max(places[0][-1], places[1][-1]) + 1
    figure, axes = plt.subplots(figsize=(max(4.0, 0.115 * width), 2.6))
    for number, weights in enumerate(weights_HQK):
        colour = COLOURS[(heads[number] - 1 if heads else 0) % len(COLOURS)]
        for row, column in np.argwhere(weights >= MIN_WEIGHT):
            weight = float(weights[row, column])
            line = ([places[0][row], places[1][column]], [0.12, 0.88])
            axes.plot(
                *line, color=colour, linewidth=0.5 + 4 * weight, alpha=0.15 + 0.8 * weight, solid_capstyle="round"
            )
    for height, align, axis, where in zip((0.06, 0.94), ("top", "bottom"), (rows, columns), places, strict=True):
        axes.text(-2, height, axis.label, ha="right", va=align, fontsize=9, color=GREY)
        for word, place in zip(axis.words, where, strict=True):
            axes.text(place, height, word, ha="center", va=align)
    axes.set_title(title, fontsize=9, color=GREY)
    axes.set(xlim=(-1, width), ylim=(-0.05, 1.05))
    axes.axis("off")
    return figure


def _word_centres(words: list[str]) -> list[float]:
    """Return the horizontal position of each word, spaced by the number of letters."""
    places, at = [], 0.0
    for word in words:
        wide = max(2, len(word)) + 2
        places.append(at + wide / 2)
        at += wide
    return places


def _heatmap(plt: Any, weights_HQK: AttentionWeights, rows: WordAxis, columns: WordAxis, title: str) -> Any:
    """Draw one panel per head, with queries down and keys across."""
    width, height = 0.3 * len(columns.words) + 1.5, 0.3 * len(rows.words) + 1.5
    figure, panels = plt.subplots(1, len(weights_HQK), figsize=(width * len(weights_HQK), height), squeeze=False)
    for axes, weights in zip(panels[0], weights_HQK, strict=True):
        axes.imshow(weights, cmap="magma_r", vmin=0.0, vmax=1.0)
        axes.set_xticks(range(len(columns.words)), columns.words, rotation=60, ha="left", rotation_mode="anchor")
        axes.set_yticks(range(len(rows.words)), rows.words)
        axes.tick_params(top=True, bottom=False, labeltop=True, labelbottom=False, length=0)
        axes.set_xlabel(columns.label, fontsize=9, color=GREY)
        axes.set_ylabel(rows.label, fontsize=9, color=GREY)
    figure.suptitle(title, fontsize=9, color=GREY, y=0.02)
    return figure

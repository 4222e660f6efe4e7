"""The result of a study as a figure: a line per row, with the score of every seed, the mean, and the interval of its change.

Marks differ in shape and brightness, none in colour alone, so a print in grey shows the same.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

from regard.explain.figures import pyplot
from regard.explain.fonts import choose_fonts
from regard.study.result.study_result import RowResult, SetResult, StudyResult
from regard.study.result.tables import label_of

BLACK, GREY, BAND = "#000000", "#6b6b6b", "#f0f0f0"
ROW_HEIGHT, PANEL_WIDTH = 0.32, 3.4  # inches
# How the mean of a row is drawn, by the verdict: shape, and what fills it.
MARKERS = {
    "baseline": ("s", BLACK, "baseline"),
    "better": ("^", BLACK, "significantly better"),
    "worse": ("v", BLACK, "significantly worse"),
    "unclear": ("D", "white", "significant by one test only"),
    "same": ("o", "white", "no difference found"),
    "untested": ("o", GREY, "not tested"),
}
FORMATS = ("svg", "pdf")


def draw_study(result: StudyResult, *, warn: Callable[[str], None] = lambda text: None) -> dict[str, bytes]:
    """Return the figure in every format of FORMATS: a panel per test set, and one of published scores if there are any."""
    plt = pyplot()
    figure = make_figure(plt, result)
    found = {}
    with warnings.catch_warnings():
        if not choose_fonts(figure, warn=warn):
            warnings.filterwarnings("ignore", message="Glyph")
        for kind in FORMATS:
            content = io.BytesIO()
            # Without a date, the same result gives the same bytes.
            date = {"Date": None} if kind == "svg" else {"CreationDate": None}
            figure.savefig(content, format=kind, bbox_inches="tight", metadata=date)
            found[kind] = content.getvalue()
    plt.close(figure)
    return found


def make_figure(plt: Any, result: StudyResult) -> Any:
    """Return the figure as an object of matplotlib."""
    published = any(result.metric in one.published for row in result.rows for one in row.sets)
    panels = len(result.tests) + published
    height = ROW_HEIGHT * len(result.rows) + 1.6
    figure, grid = plt.subplots(
        1, panels, figsize=(PANEL_WIDTH * panels + 2.0, height), sharey=True, squeeze=False, layout="constrained"
    )
    used: dict[str, Any] = {}
    for number, test in enumerate(result.tests):
        axes = grid[0][number]
        axes.set_title(test, fontsize=10)
        for place, row in enumerate(result.rows):
            used |= _draw_row(axes, place, row, row.sets[number], result)
        base = result.row(result.baseline).sets[number].scores.get(result.metric)
        if base is not None:
            axes.axvline(base.mean, color=GREY, linewidth=1, linestyle="--", zorder=1)
        _finish(axes, result, label_of(result.metric))
    if published:
        _draw_published(grid[0][-1], result)
    names = grid[0][0]
    names.set_yticks(range(len(result.rows)), [row.name.replace("$", r"\$") for row in result.rows])
    names.set_ylim(len(result.rows) - 0.5, -0.5)
    order = [name for _, _, name in MARKERS.values()]
    labels = sorted(used, key=lambda name: order.index(name) if name in order else len(order))
    figure.legend(
        [used[name] for name in labels], labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8
    )
    return figure


def _draw_row(axes: Any, place: int, row: RowResult, scored: SetResult, result: StudyResult) -> dict[str, Any]:
    """Draw one row, and return what its marks mean."""
    spread, compared = scored.scores.get(result.metric), scored.compared
    if spread is None:
        axes.annotate(
            "no result", (0.02, place), xycoords=("axes fraction", "data"), va="center", fontsize=8, color=GREY
        )
        return {}
    used = {}
    seeds = [own[result.metric] for own in scored.by_seed.values() if result.metric in own]
    points = axes.plot(seeds, [place] * len(seeds), linestyle="none", marker="|", markersize=10, color=GREY, zorder=2)
    used["one seed"] = points[0]
    if compared is not None and compared.low is not None and compared.high is not None:
        ends = [spread.mean + bound - compared.change for bound in (compared.low, compared.high)]
        line = axes.plot(ends, [place, place], color=BLACK, linewidth=1.6, solid_capstyle="butt", zorder=3)
        used["95 % interval of the change, uncorrected"] = line[0]
    kind = "baseline" if row.name == result.baseline else "untested" if compared is None else compared.verdict
    marker, fill, name = MARKERS[kind]
    style = {"linestyle": "none", "marker": marker, "markersize": 7, "markeredgecolor": BLACK, "markerfacecolor": fill}
    used[name] = axes.plot([spread.mean], [place], zorder=4, **style)[0]
    return used


def _draw_published(axes: Any, result: StudyResult) -> None:
    axes.set_title("published", fontsize=10)
    for place, row in enumerate(result.rows):
        found = row.sets[0].published.get(result.metric) if row.sets else None
        if found is not None:
            axes.plot([found.score], [place], linestyle="none", marker="x", markersize=7, color=BLACK, zorder=3)
            if row.name == result.baseline:
                axes.axvline(found.score, color=GREY, linewidth=1, linestyle="--", zorder=1)
    _finish(axes, result, f"{label_of(result.metric)}, other data")


def _finish(axes: Any, result: StudyResult, label: str) -> None:
    """Shade every second group, and leave out lines that say nothing."""
    groups = list(dict.fromkeys(row.group for row in result.rows))
    for place, row in enumerate(result.rows):
        if groups.index(row.group) % 2:
            axes.axhspan(place - 0.5, place + 0.5, color=BAND, linewidth=0, zorder=0)
    axes.set_xlabel(label, fontsize=9)
    axes.tick_params(labelsize=9, left=False)
    axes.spines[["top", "right", "left"]].set_visible(False)

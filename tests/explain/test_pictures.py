"""Pictures that a task draws itself."""

import base64

import pytest

from regard.errors import DecodeError
from regard.explain.attention import Axis
from regard.explain.figures import FigureOptions, draw
from regard.explain.pictures import Picture
from regard.explain.report import as_page
from regard.explain.trace import Trace

pytest.importorskip("matplotlib")


def plane(plt):
    figure, axes = plt.subplots()
    axes.plot([0, 1], [0, 1])
    axes.set_title("points <in> a plane")
    return figure


AXES = {"source": Axis.from_tokens("input", ["a"]), "target": Axis.from_tokens("output", ["b"])}
TRACE = Trace("model", AXES, [], [0.5], [[]], (Picture("plane", plane),))


def test_the_picture_of_a_task_is_drawn_instead_of_attention(tmp_path):
    draw(TRACE, tmp_path / "a.svg", FigureOptions())
    draw(TRACE, tmp_path / "b.svg", FigureOptions(name="plane"))
    assert "<svg" in (tmp_path / "a.svg").read_text() and (tmp_path / "b.svg").exists()


def test_a_name_that_is_neither_attention_nor_a_picture_is_refused(tmp_path):
    with pytest.raises(DecodeError):
        draw(TRACE, tmp_path / "a.svg", FigureOptions(name="plain"))


def test_the_page_shows_the_picture():
    page = as_page(TRACE)
    start = page.index("data:image/svg+xml;base64,") + len("data:image/svg+xml;base64,")
    svg = base64.b64decode(page[start : page.index('"', start)]).decode()
    assert "<svg" in svg and '<img alt="plane"' in page

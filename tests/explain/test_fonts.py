"""Pictures with characters that the usual font lacks."""

import warnings

import pytest

from regard.explain.attention import Attention, Axis
from regard.explain.figures import FigureOptions, draw, pyplot
from regard.explain.trace import Trace
from regard.messages import RegardWarning

np = pytest.importorskip("numpy")
matplotlib = pytest.importorskip("matplotlib")

PRIVATE = "\U000f1234"  # a character for private use, which no installed font should have


@pytest.fixture
def font(tmp_path):
    """A font that has one character, installed for one test."""
    builder_of = pytest.importorskip("fontTools.fontBuilder").FontBuilder
    pen = pytest.importorskip("fontTools.pens.ttGlyphPen").TTGlyphPen(None)
    for corner, step in (
        ((100, 0), pen.moveTo),
        ((100, 700), pen.lineTo),
        ((600, 700), pen.lineTo),
        ((600, 0), pen.lineTo),
    ):
        step(corner)
    pen.closePath()
    square = pen.glyph()
    builder = builder_of(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "square"])
    builder.setupCharacterMap({ord(PRIVATE): "square"})
    builder.setupGlyf({".notdef": square, "square": square})
    builder.setupHorizontalMetrics({".notdef": (700, 100), "square": (700, 100)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Regard Test", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, usWinAscent=800, usWinDescent=200)
    builder.setupPost()
    builder.save(tmp_path / "test.ttf")
    pyplot()
    fonts = matplotlib.font_manager.fontManager
    before = list(fonts.ttflist)
    fonts.addfont(tmp_path / "test.ttf")
    yield
    fonts.ttflist[:] = before


def trace_of(word):
    axes = {"source": Axis.from_tokens("input", [word, "a"]), "target": Axis.from_tokens("output", ["b"])}
    return Trace("", axes, [Attention("pointer", 1, "target", "source", np.full((1, 1, 2), 0.5, dtype=np.float32))])


@pytest.mark.parametrize("heatmap", [True, False])
@pytest.mark.parametrize("ending", ["svg", "png"])
def test_a_character_is_drawn_with_an_installed_font_that_has_it(font, tmp_path, ending, heatmap):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(trace_of(PRIVATE), tmp_path / f"picture.{ending}", FigureOptions(heatmap=heatmap))


def test_a_character_that_no_font_has_is_named(tmp_path):
    with pytest.warns(RegardWarning, match="no installed font has \U000f1234"):
        draw(trace_of(PRIVATE), tmp_path / "picture.png", FigureOptions())

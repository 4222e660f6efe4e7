"""The picture of a document: shades, lines, and that it can be drawn."""

import pytest

from regard.explain.document import LINE, document_picture, shades, wrap
from regard.explain.figures import pyplot


def test_shades_are_weights_times_the_root_of_that_of_the_sentence():
    assert shades([("a", 0.5), ("b", 0.25)], 0.16) == [pytest.approx(0.2), pytest.approx(0.1)]


def test_long_sentences_take_several_lines():
    words = [("x" * 20, 0.1)] * 7
    lines = wrap(words)
    assert lines == [[0, 1, 2], [3, 4, 5], [6]] and 3 * 21 - 1 <= LINE < 4 * 21 - 1


def test_the_picture_has_every_word_and_the_weight_of_every_sentence():
    plt = pyplot()
    figure = document_picture([[("good", 1.0)], [("soup", 0.3), ("today", 0.7)]], [0.9, 0.1], "good").draw(plt)
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert {"good", "soup", "today", "0.90", "0.10", "word attention; label: good"} <= texts
    plt.close(figure)

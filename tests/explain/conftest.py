"""Traces: a translation by a pretrained model, and made-up traces of other tasks; pages in a browser."""

import numpy as np
import pytest

import regard
from regard.explain.attention import Attention, Axis
from regard.explain.report import as_page
from regard.explain.trace import Alternative, Trace
from regard.explain.translation_trace import trace_translation
from tests.browser import Watched

SENTENCE = "The animal didn't cross the street because it was too tired."


@pytest.fixture(scope="session")
def translator():
    return regard.load("en-de", device="cpu")


@pytest.fixture(scope="session")
def trace(translator):
    return trace_translation(translator, SENTENCE, name="en-de")


@pytest.fixture
def tagger():
    """One label per word; two layers of attention of the input over itself."""
    words, labels = ["Ada", "met", "Alan", "Turing"], ["PER", "O", "PER", "PER"]
    layer = np.stack([np.eye(4, dtype=np.float32), np.full((4, 4), 0.25, dtype=np.float32)])
    return Trace(
        model="tagger",
        axes={"source": Axis.from_tokens("input", words), "target": Axis.from_tokens("labels", labels)},
        attentions=[Attention("encoder", number, "source", "source", layer, self_attention=True) for number in (1, 2)],
        probabilities=[0.9, 0.8, 0.7, 0.6],
        alternatives=[[Alternative(0, "LOC", 0.1, "")] for _ in labels],
    )


@pytest.fixture
def long_tagger():
    """More words than a phone has room for."""
    words = [f"word{number}" for number in range(400)]
    attention = Attention("encoder", 1, "source", "source", np.eye(400, dtype=np.float32)[None], self_attention=True)
    axes = {"source": Axis.from_tokens("input", words), "target": Axis.from_tokens("labels", ["O"] * 400)}
    return Trace(model="tagger", axes=axes, attentions=[attention])


@pytest.fixture
def uneven():
    """Two kinds of attention, of three heads and of two."""
    axes = {"source": Axis.from_tokens("input", ["a", "b"]), "target": Axis.from_tokens("output", ["c", "d"])}
    sizes = {"wide": 3, "narrow": 2}
    found = [
        Attention(name, 1, "target", "source", np.full((heads, 2, 2), 0.5, dtype=np.float32))
        for name, heads in sizes.items()
    ]
    return Trace(model="uneven", axes=axes, attentions=found)


@pytest.fixture
def pointer():
    """Three positions of an input of four, in the order of the output."""
    points = ["(0, 1)", "(2, 0)", "(1, 1)", "(3, 2)"]
    weights = np.array([[[0.1, 0.2, 0.0, 0.7], [1, 0, 0, 0], [0, 0.5, 0.5, 0]]], dtype=np.float32)
    return Trace(
        model="pointer",
        axes={"source": Axis.from_tokens("points", points), "target": Axis.from_tokens("order", ["4", "1", "2"])},
        attentions=[Attention("pointer", 1, "target", "source", weights)],
    )


@pytest.fixture
def opened(browser, trace, tmp_path):
    def opener(shown=trace, **options):
        path = tmp_path / "look.html"
        path.write_text(as_page(shown), encoding="utf-8")
        watched = Watched(browser, **options)
        watched.page.goto(path.as_uri())
        watched.page.wait_for_selector(".lines path", state="attached")
        return watched

    return opener

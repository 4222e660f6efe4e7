"""Traces: a translation by a pretrained model, and made-up traces of a tagger and of a pointer network."""

import numpy as np
import pytest

import regard
from regard.explain.attention import Attention, Axis
from regard.explain.trace import Alternative, Trace
from regard.explain.translation_trace import trace_translation

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
def pointer():
    """Three positions of an input of four, in the order of the output."""
    points = ["(0, 1)", "(2, 0)", "(1, 1)", "(3, 2)"]
    weights = np.array([[[0.1, 0.2, 0.0, 0.7], [1, 0, 0, 0], [0, 0.5, 0.5, 0]]], dtype=np.float32)
    return Trace(
        model="pointer",
        axes={"source": Axis.from_tokens("points", points), "target": Axis.from_tokens("order", ["4", "1", "2"])},
        attentions=[Attention("pointer", 1, "target", "source", weights)],
    )

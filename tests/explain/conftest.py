"""A trace of a sentence, by the model that comes in the box."""

import pytest

import regard
from regard.explain.trace import trace_translation

SENTENCE = "The animal didn't cross the street because it was too tired."


@pytest.fixture(scope="session")
def translator():
    return regard.load("en-de", device="cpu")


@pytest.fixture(scope="session")
def trace(translator):
    return trace_translation(translator, SENTENCE, name="en-de")

"""A sight of a sentence, by the model that comes in the box."""

import pytest

import regard
from regard.explain.trace import see

SENTENCE = "The animal didn't cross the street because it was too tired."


@pytest.fixture(scope="session")
def translator():
    return regard.load("en-de", device="cpu")


@pytest.fixture(scope="session")
def sight(translator):
    return see(translator, SENTENCE, name="en-de")

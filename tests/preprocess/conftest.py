"""A small corpus that is split into several small shards."""

import random

import pytest

from regard.preprocess import prepare, shards
from regard.recipe_files import load_recipe

WORDS = ["haus", "hund", "katze", "rot", "und", "ist", "klein", "groß", "baum", "wald", "see", "berg"]
PAIRS = 2_300
RECIPE = """
[data]
train = { pairs = "train.tsv" }
[tokenizer]
size = 80
[model]
kind = "transformer"
width = 16
num_layers = 1
num_heads = 2
hidden = 16
[train]
steps = 12
tokens = 256
threads = 1
device = "cpu"
"""


def lines(count=PAIRS, seed=1):
    generator = random.Random(seed)
    drawn = [generator.choices(WORDS, k=generator.randint(1, 9)) for _ in range(count)]
    return [f"{' '.join(words)}\t{' '.join(reversed(words)).upper()}\n" for words in drawn]


@pytest.fixture
def folder(tmp_path):
    """A folder with text and a recipe."""
    (tmp_path / "train.tsv").write_text("".join(lines()))
    (tmp_path / "my.toml").write_text(RECIPE)
    return tmp_path


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(prepare, "PAIRS_PER_SHARD", 500)
    monkeypatch.setattr(shards, "CHUNK_PAIRS", 100)


@pytest.fixture
def make(folder, small_shards):
    """Return a function that prepares the corpus into a folder of a given name."""

    def make_store(name="ids", overrides=(), **settings):
        recipe = load_recipe(str(folder / "my.toml"), overrides)
        return prepare.prepare(recipe, folder / name, folders=[folder], **settings)

    return make_store

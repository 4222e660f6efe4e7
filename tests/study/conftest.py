"""A study that trains in a second or two per cell."""

import random

import pytest

from regard.study.study_file import read_study

TINY = """
question = "Does a second layer help?"
recipe = "letters.toml"
metric = "token_errors"
seeds = [1, 2]
baseline = "two layers"
[settings]
"train.steps" = 12
"train.warmup_steps" = 4
"train.tokens" = 128
"train.checkpoint_every" = 3
"train.validate_every" = 6
"train.validate_pairs" = 5
"train.log_every" = 3
"train.threads" = 1
"model.width" = 16
"model.hidden" = 16
"model.num_heads" = 2
"decode.max_extra" = 2
[rows."two layers"]
[rows."one layer"]
settings = { "model.num_layers" = 1 }
"""
RECIPE = """
base = "reverse"
[data]
train = { pairs = "train.tsv" }
valid = { pairs = "valid.tsv" }
test = { test = { pairs = "test.tsv" } }
"""


def write_letters(folder):
    """Write a recipe that reverses letters, and its data: 300 pairs to train on, 20 in each of the other sets."""
    generator = random.Random(1)
    (folder / "letters.toml").write_text(RECIPE, encoding="utf-8")
    for name, count in (("train", 300), ("valid", 20), ("test", 20)):
        lines = [" ".join(generator.choices("abcdef", k=generator.randint(2, 6))) for _ in range(count)]
        (folder / f"{name}.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def write_study(tmp_path):
    """Writes the tiny study with changes to its text, and returns the file."""

    def write(*changes, name="tiny.toml"):
        write_letters(tmp_path)
        text = TINY
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def make_study(write_study):
    return lambda *changes: read_study(write_study(*changes))

"""Training examples that share text with a test set are left out."""

from pathlib import Path

import pytest

from regard.errors import ConfigError
from regard.recipe_files import load_recipe
from regard.tasks.corpus import read_corpus
from regard.text.corpus import Pair
from regard.text.decontamination import decontaminated

TEST = "We have for the last couple of weeks met"


def test_eight_shared_words_leave_an_example_out_and_seven_do_not() -> None:
    eight = Pair("Well: we have, for the last COUPLE of weeks, slept.", "")
    seven = Pair("we have for the last couple of days met", "")
    target = Pair("x", "and have for the last couple of weeks met")
    assert list(decontaminated([eight, seven, target], [Pair(TEST, "")])) == [seven]
    assert list(decontaminated([eight], [Pair("of weeks", "")])) == [eight]  # shorter sentences are not looked for


def test_a_recipe_decontaminates_and_says_how_many(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text(f"a\tb\nand {TEST} again\tc\nc\td\n", encoding="utf-8")
    (tmp_path / "test.tsv").write_text(f"{TEST}\tz\n", encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(
        "[data]\ndecontaminate = true\ntrain.pairs = 'train.tsv'\ntest.one.pairs = 'test.tsv'\n[model]\nkind = 'rnn'\n",
        encoding="utf-8",
    )
    corpus = read_corpus(load_recipe(str(tmp_path / "recipe.toml")), [tmp_path])
    assert corpus.train.examples() == [Pair("a", "b"), Pair("c", "d")]
    left_out = "1 other left out: it shares eight consecutive words with a test set"
    assert corpus.summary.startswith(f"2 examples to train on ({left_out})")


def test_decontaminating_needs_a_test_set_and_text() -> None:
    with pytest.raises(ConfigError, match=r"name some in data\.test"):
        load_recipe("dates", ["data.decontaminate=true", "data.test={}"])

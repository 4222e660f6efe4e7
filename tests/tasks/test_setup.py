"""What a run reports and decides before its first step."""

import pytest

import regard
from regard.errors import DataError
from regard.training.events import Noted

TINY = [
    *("model.width=16", "model.num_layers=1", "model.num_heads=2", "model.hidden=32", "tokenizer.kind=word"),
    *("train.steps=1", "train.tokens=64", "train.checkpoint_every=1", "train.threads=1", "train.device=cpu"),
]


def test_pairs_that_are_too_long_are_counted_and_the_setting_is_named(tmp_path):
    (tmp_path / "train.tsv").write_text("a b\tb a\na b c d\td c b a\nb\ta b c d e\n")
    notes = []
    recipe = tmp_path / "my.toml"
    recipe.write_text('[data]\ntrain = { pairs = "train.tsv" }\nmax_length = 3\n[model]\nkind = "transformer"\n')
    regard.train(str(recipe), out=tmp_path / "run", overrides=TINY, listen=notes.append)
    texts = [note.text for note in notes if isinstance(note, Noted)]
    assert (
        "training leaves out 2 of 3 examples with more than 3 tokens on a side; raise data.max_length to keep them"
        in texts
    )


def test_a_run_resumes_when_its_recipe_says_since_where_its_files_may_be(tmp_path):
    (tmp_path / "train.tsv").write_text("a b\tb a\n")
    recipe = tmp_path / "my.toml"
    recipe.write_text('[data]\ntrain = { pairs = "train.tsv" }\n[model]\nkind = "transformer"\n')
    settings, asked = [*TINY, "train.steps=3"], iter(range(100))
    begun = regard.train(str(recipe), out=tmp_path / "run", overrides=settings, stop=lambda: next(asked) >= 2)
    assert not begun.finished
    new = recipe.read_text().replace("[model]", 'origin = "example.org"\nfolders = ["."]\n[model]')
    recipe.write_text(new)
    assert regard.train(str(recipe), out=tmp_path / "run", overrides=settings).finished


def test_a_dev_set_whose_examples_are_all_too_long_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"^every dev example has more than 2 tokens on a side; raise data.max_length"):
        regard.train("copy", out=tmp_path / "run", overrides=[*TINY, "data.max_length=2"], listen=lambda event: None)
    assert not (tmp_path / "run").exists()

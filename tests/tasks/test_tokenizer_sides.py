"""A tokenizer of another kind on each side: letters in, symbols out, through every verb."""

import json
import random

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.config import TokenizerConfig, TokenizerSide
from regard.errors import ConfigError
from regard.preprocess.prepare import prepare
from regard.recipe_files import load_recipe
from regard.run.folder import RunFolder
from regard.tasks import task_of
from regard.tasks.corpus import TextPairs
from regard.text.corpus import Pair
from regard.text.tokenizer import TOKENIZERS, register_tokenizer

RECIPE = """
[data]
train = { pairs = "train.tsv" }
valid = { pairs = "train.tsv" }
test = { same = { pairs = "train.tsv" } }

[tokenizer]
joint = false
size = 60
[tokenizer.source]
kind = "char"
[tokenizer.target]
kind = "word"
size = 20

[model]
kind = "transformer"
width = 16
num_layers = 1
num_heads = 2
hidden = 32
tie = "target"

[train]
steps = 4
tokens = 256
checkpoint_every = 2
validate_pairs = 4
threads = 1
device = "cpu"
"""
SOUNDS = {"a": "AH", "b": "B", "c": "K", "d": "D"}


@pytest.fixture
def folder(tmp_path):
    """Words and how they are pronounced."""
    words = ["".join(random.Random(number).choices("abcd", k=5)) for number in range(60)]
    lines = [f"{word}\t{' '.join(SOUNDS[letter] for letter in word)}\n" for word in words]
    (tmp_path / "train.tsv").write_text("".join(lines))
    (tmp_path / "my.toml").write_text(RECIPE)
    return tmp_path


def train(folder, name="run", *overrides, **options):
    return regard.train(str(folder / "my.toml"), out=folder / name, overrides=overrides, data=folder, **options)


def call(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def weights(folder, name):
    return RunFolder(folder / name).weights()[0].weights


def test_each_side_has_its_kind_and_its_size(folder):
    task = task_of(load_recipe(str(folder / "my.toml")))
    codec = task.fit(TextPairs([Pair("abcd", "AH B K D")]))
    assert (codec.source.kind, codec.target.kind) == ("char", "word")
    assert codec.source.tokenize("ab") == ["a", "b"] and codec.target.tokenize("AH B") == ["AH", "B"]


def test_every_verb_works(folder):
    assert train(folder).finished
    run = folder / "run"
    predictor = regard.load(run, device="cpu")
    assert (predictor.tokenizers.source.kind, predictor.tokenizers.target.kind) == ("char", "word")
    assert all(set(output.split()) <= set(SOUNDS.values()) for output in predictor.predict(["abcd", "dd"]))
    trace = regard.look(run, "ab😀", device="cpu")
    assert trace.source.tokens == ["a", "b", "😀", "</s>"]
    regard.card(run, data=folder, device="cpu")
    card = json.loads((run / "card.json").read_text())
    assert card["recipe"]["tokenizer"]["source"] == {"kind": "char"}
    copy = regard.export(run, folder / "copy")
    assert regard.load(copy.path, device="cpu").predict(["abcd"]) == predictor.predict(["abcd"])
    shown = call("train", folder / "my.toml", "--show")
    assert '[tokenizer.source]\nkind = "char"' in shown and '[tokenizer.target]\nkind = "word"\nsize = 20' in shown


def test_a_stopped_run_resumes_to_the_same_weights_and_refuses_another_kind(folder):
    asked = iter(range(100))
    assert not train(folder, "stopped", stop=lambda: next(asked) >= 3).finished
    with pytest.raises(ConfigError, match=r"tokenizer\.source\.kind: char -> word"):
        train(folder, "stopped", "tokenizer.source.kind=word")
    assert train(folder, "stopped").finished and train(folder, "run").finished
    expected = weights(folder, "run")
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(folder, "stopped").items())


def test_a_store_trains_like_its_text_and_refuses_other_settings(folder):
    prepare(load_recipe(str(folder / "my.toml")), folder / "ids", folders=[folder])
    train(folder, "text")
    train(folder, "stored", f"data.train.store={folder / 'ids'}")
    expected = weights(folder, "text")
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(folder, "stored").items())
    store = f"data.train.store={folder / 'ids'}"
    with pytest.raises(
        ConfigError, match=r"tokenizer\.target\.size is 30, but .* with 20; set tokenizer\.target\.size=20"
    ):
        train(folder, "other", store, "tokenizer.target.size=30")
    with pytest.raises(ConfigError, match=r"tokenizer\.source\.size is 50, but .* with None; leave it out"):
        train(folder, "other", store, "tokenizer.source.size=50")
    with pytest.raises(ConfigError, match="ids on disk are the same every epoch"):
        train(folder, "other", store, "tokenizer.target.sampling=0.1")


def test_one_side_may_be_sampled(folder):
    overrides = ["tokenizer.target.kind=bpe", "tokenizer.target.sampling=0.5", "tokenizer.target.size=40"]
    task = task_of(load_recipe(str(folder / "my.toml"), overrides))
    train_data = TextPairs([Pair("abcd", "AH B K D AH AH B")] * 20)
    codec = task.fit(train_data)
    dataset = task.dataset(train_data, codec)
    draw = task.epochs(train_data, dataset, codec)
    assert (draw(1)["source"].values == dataset["source"].values).all()
    assert len(draw(1)["target"].values) > len(dataset["target"].values)


def test_a_kind_of_a_plug_in_may_be_on_one_side(folder, monkeypatch):
    monkeypatch.setattr(TOKENIZERS, "_entries", dict(TOKENIZERS._entries))
    char = TOKENIZERS.get("char", where="kind")

    class Letters:
        """Characters under another name."""

        kind = "letters"

        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

    register_tokenizer(
        "letters",
        regard.TokenizerKind(
            lambda texts, *, kind, size, coverage: Letters(
                char.train(texts, kind="char", size=size, coverage=coverage)
            ),
            lambda folder, name, *, kind: Letters(char.load(folder, name, kind="char")),
        ),
    )
    assert train(folder, "run", "tokenizer.source.kind=letters").finished
    assert regard.load(folder / "run", device="cpu").tokenizers.source.kind == "letters"


def test_mistakes_are_explained(folder):
    with pytest.raises(ConfigError, match=r"joint = false"):
        train(folder, "run", "tokenizer.joint=true")
    with pytest.raises(ConfigError, match=r"tokenizer\.source\.kind is 'chr'; did you mean 'char'\?"):
        train(folder, "run", "tokenizer.source.kind=chr")
    with pytest.raises(ConfigError, match=r"tokenizer\.source has no field 'joint'"):
        train(folder, "run", "tokenizer.source.joint=true")
    with pytest.raises(ConfigError, match=r"model\.tie=target"):
        train(folder, "run", "model.tie=all")
    assert not (folder / "run").exists()


def test_the_sides_inherit_what_they_do_not_set():
    config = TokenizerConfig(size=50, coverage=0.99, joint=False, source=TokenizerSide(kind="char"))
    assert config.side("source") == TokenizerConfig(kind="char", size=50, coverage=0.99, joint=False)
    assert config.side("target") == TokenizerConfig(kind="bpe", size=50, coverage=0.99, joint=False)


def test_separate_vocabularies_of_the_same_size_do_not_share_their_embeddings():
    pairs = TextPairs([Pair("a b", "c d")])
    recipe = load_recipe("copy", ["tokenizer.kind=word", "tokenizer.joint=false", "model.tie=all"])
    with pytest.raises(ConfigError, match="the two sides have separate vocabularies"):
        task_of(recipe).fit(pairs)


# Tasks with text on one side only


@pytest.mark.parametrize("recipe", ["runs", "majority"])
def test_a_task_with_labels_has_one_tokenizer_which_is_that_of_its_source(recipe):
    labels = "a a" if recipe == "runs" else "a"
    pairs = TextPairs([Pair("ab ab", labels)])
    sides = ["tokenizer.joint=false", "tokenizer.source.kind=char"]
    assert task_of(load_recipe(recipe, sides)).fit(pairs).tokenizer.kind == "char"
    with pytest.raises(ConfigError, match=r"remove \[tokenizer\.target\]"):
        task_of(load_recipe(recipe, [*sides, "tokenizer.target.kind=char"])).fit(pairs)

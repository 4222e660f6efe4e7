"""Runs that begin with the weights of another run (`train.init`)."""

import json

import pytest
import torch

import regard
from regard.errors import ConfigError
from regard.recipe_files import load_recipe
from regard.run.folder import RunFolder
from regard.tasks import task_of
from regard.tasks.base import Task
from regard.tasks.corpus import TextPairs
from regard.tasks.initialize import vocabulary_axes
from regard.text.generators import generate
from regard.training.events import Noted

TINY = [
    *("model.width=16", "model.num_layers=1", "model.num_heads=2", "model.hidden=16", "train.tokens=128"),
    *("train.validate_every=9", "train.checkpoint_every=2", "train.threads=1", "train.device=cpu"),
]
NOTHING = ["train.steps=1", "train.lr=0"]  # the weights stay what they were


def write(folder, name, lines):
    (folder / name).write_text("".join(f"{line}\n" for line in lines))


def train(recipe, out, *overrides, data=None, **options):
    events = []
    regard.train(recipe, out=out, overrides=[*TINY, *overrides], data=data, listen=events.append, **options)
    return RunFolder(out).weights()[0].weights, [event.text for event in events if isinstance(event, Noted)]


def embedding_of(run, recipe_weights, token):
    symbols = json.loads((run / "tokenizer" / "joint.json").read_text())
    return recipe_weights["embedding"][3 + symbols.index(token)]


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """A masked language model of a few words, which reads their characters."""
    folder = tmp_path_factory.mktemp("masked")
    write(folder, "text.txt", ["the dog sees a cat", "a cat sleeps"] * 5)
    data = ['data.train={text="text.txt"}', 'data.valid={text="text.txt"}', "data.test={}", "model.characters=4"]
    train("repeats", folder / "run", *data, "train.steps=2", data=folder)
    return folder / "run"


def tagging(folder, *more):
    write(folder, "tags.tsv", ["the cow sees a cat\tD N V D N", "Cats see\tN V"] * 5)
    data = ['data.train={pairs="tags.tsv"}', "data.valid={hold_out=2}", "data.test={}", "model.characters=4"]
    return [*data, "model.feed_forward=conv", *more]


def test_a_tagger_begins_with_the_encoder_of_a_masked_model_and_its_tokenizer(masked, tmp_path):
    init = f"train.init={masked}"
    weights, notes = train("runs", tmp_path / "run", *tagging(tmp_path, init, *NOTHING), data=tmp_path)
    given = RunFolder(masked).weights()[0].weights
    for name, weight in given.items():
        assert torch.equal(weights[name], weight), name
    [note] = [note for note in notes if note.startswith("begins with")]
    assert note == (
        f"begins with {len(given)} of {len(given) + 2} tensors from {masked}; new: output.weight, output.bias"
    )
    assert "dog" in (tmp_path / "run" / "tokenizer" / "joint.json").read_text()
    assert RunFolder(tmp_path / "run").corpus()["init"]["step"] == 2
    regard.card(tmp_path / "run", evaluated=False)
    assert "| began with | run `run`, step 2, sha256" in (tmp_path / "run" / "card.md").read_text()


def test_rows_of_another_vocabulary_are_found_by_their_text(masked, tmp_path):
    options = [f"train.init={masked}", "tokenizer.size=50", *NOTHING]
    weights, notes = train("runs", tmp_path / "run", *tagging(tmp_path, *options), data=tmp_path)
    given = RunFolder(masked).weights()[0].weights
    for token in ("the", "a", "cat", "sees"):
        assert torch.equal(embedding_of(tmp_path / "run", weights, token), embedding_of(masked, given, token))
    # Reserved tokens and "the", "sees", "a", "cat" of "the cow sees a cat cats see".
    assert any("7 of 10 rows of embedding" in note for note in notes), notes
    assert any("rows of spelling.embedding" in note for note in notes)


def test_resuming_does_not_need_the_run_it_began_with(masked, tmp_path):
    own = tmp_path / "init"
    regard.export(masked, own)
    options = tagging(tmp_path, f"train.init={own}", "train.steps=4")
    expected, _ = train("runs", tmp_path / "whole", *options, data=tmp_path)
    asked = iter(range(100))
    train("runs", tmp_path / "run", *options, data=tmp_path, stop=lambda: next(asked) >= 3)
    own.rename(tmp_path / "gone")
    found, notes = train("runs", tmp_path / "run", *options, data=tmp_path)
    assert RunFolder(tmp_path / "run").finished and not any("begins with" in note for note in notes)
    for name, weight in expected.items():
        assert torch.equal(found[name], weight), name


def test_a_translation_run_is_fine_tuned(tmp_path):
    first, _ = train("copy", tmp_path / "first", "train.steps=2")
    weights, notes = train("reverse", tmp_path / "second", f"train.init={tmp_path / 'first'}", *NOTHING)
    for name, weight in first.items():
        assert torch.equal(weights[name], weight), name
    assert any(note == f"begins with {len(first)} of {len(first)} tensors from {tmp_path / 'first'}" for note in notes)


def test_a_tagger_begins_with_the_encoder_of_a_translation_model(tmp_path):
    first, _ = train("copy", tmp_path / "first", "train.steps=2")
    weights, _ = train("runs", tmp_path / "second", f"train.init={tmp_path / 'first'}", *NOTHING)
    name = next(name for name in first if name.startswith("encoder.0.")).removeprefix("encoder.0.")
    assert torch.equal(weights[f"encoder.layers.0.{name}"], first[f"encoder.0.{name}"])


def test_a_run_without_anything_that_fits_is_refused(masked, tmp_path):
    options = tagging(tmp_path, f"train.init={masked}", "model.width=32", "model.hidden=32", "model.characters=0")
    with pytest.raises(ConfigError, match="has no weights of the names and shapes of this model"):
        train("runs", tmp_path / "run", *options, *NOTHING, data=tmp_path)
    assert not (tmp_path / "run").exists()


def test_transitions_between_labels_are_found_by_the_names_of_both(tmp_path):
    write(tmp_path, "first.tsv", ["a b c\tA B C", "c a b\tC A B"] * 5)
    write(tmp_path, "second.tsv", ["a b c\tB C D", "c a b\tC D B"] * 5)  # as many labels, one of them new
    more = ["data.valid={hold_out=2}", "data.test={}", "model.crf=true"]
    first, _ = train(
        "runs", tmp_path / "first", 'data.train={pairs="first.tsv"}', *more, "train.steps=4", data=tmp_path
    )
    init = [f"train.init={tmp_path / 'first'}", *NOTHING]
    second, _ = train("runs", tmp_path / "second", 'data.train={pairs="second.tsv"}', *more, *init, data=tmp_path)
    given, taken = first["crf.transitions"], second["crf.transitions"]
    assert torch.equal(taken[:2, :2], given[1:, 1:]) and given.any()  # B and C
    assert not taken[2].any() and not taken[:, 2].any()  # D


@pytest.mark.parametrize("size", ["tokenizer.size=80", "tokenizer.size=90"])  # that of the masked model, or another
def test_a_classifier_begins_with_a_masked_model_and_finds_labels_by_their_names(size, tmp_path):
    write(tmp_path, "text.txt", ["a b c"] * 20)
    write(tmp_path, "first.tsv", ["c d a\tX", "a a c\tY"] * 5)
    write(tmp_path, "second.tsv", ["c d a\tY", "a a c\tZ"] * 5)
    more = ["data.valid={hold_out=2}", "data.test={}", "tokenizer.kind=word"]
    text = ['data.train={text="text.txt"}', "tokenizer.size=80", "train.steps=1"]
    masked, _ = train("repeats", tmp_path / "masked", *text, *more, data=tmp_path)
    runs = {}
    for name, before in (("first", "masked"), ("second", "first")):
        options = [f'data.train={{pairs="{name}.tsv"}}', f"train.init={tmp_path / before}", size, *more, *NOTHING]
        runs[name], _ = train("majority", tmp_path / name, *options, data=tmp_path)
    first, second = runs["first"], runs["second"]
    for token in ("a", "c"):
        before, after = embedding_of(tmp_path / "masked", masked, token), embedding_of(tmp_path / "first", first, token)
        assert torch.equal(before, after), token
    # With the same settings the tokenizer is that of the other run.
    words = json.loads((tmp_path / "first" / "tokenizer" / "joint.json").read_text())
    assert ("b" in words, "d" in words) == ((True, False) if size == "tokenizer.size=80" else (False, True))
    assert torch.equal(second["output.weight"][0], first["output.weight"][1])  # Y
    assert not torch.equal(second["output.weight"][1], first["output.weight"][0])  # Z and X


def test_a_model_of_stories_finds_words_and_answers_by_their_text(tmp_path):
    write(tmp_path, "first.tsv", ["dogs bark | who barks?\tdogs", "cats sleep | who sleeps?\tcats"] * 5)
    write(tmp_path, "second.tsv", ["cows sleep | who sleeps?\tcows", "cats bark | who barks?\tcats"] * 5)
    options = [one for one in TINY if one.startswith(("model.width", "train."))]
    weights = []
    for name, init in (("first", []), ("second", [f"train.init={tmp_path / 'first'}", "train.seed=2"])):
        data = [f'data.train={{pairs="{name}.tsv"}}', "data.valid={hold_out=2}", "data.test={}", *init, *NOTHING]
        regard.train(
            "rooms", out=tmp_path / name, overrides=[*options, *data], data=tmp_path, listen=lambda event: None
        )
        weights.append(RunFolder(tmp_path / name).weights()[0].weights)
    first, second = weights
    assert torch.equal(
        embedding_of(tmp_path / "first", first, "cats"), embedding_of(tmp_path / "second", second, "cats")
    )
    [name] = [name for name, weight in first.items() if weight.size(0) == 2]
    assert torch.equal(first[name][0], second[name][0])  # cats
    assert not torch.equal(first[name][1], second[name][1])  # dogs and cows


FAMILIES = dict.fromkeys(("transformer", "rnn", "convs2s", "bytenet", "nat", "cmlm", "ctc"), "copy")
FAMILIES |= {
    "tagger": "runs",
    "classifier": "majority",
    "masked-lm": "repeats",
    "han": "documents",
    "captioner": "shapes",
}
FAMILIES |= {"entnet": "rooms", "reader": "rooms", "decoder": "counting", "pointer": "sort-numbers"}


@pytest.mark.filterwarnings("ignore:model.kind=")
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_vocabulary_is_found_among_the_dimensions_of_parameters(kind):
    recipe = load_recipe(FAMILIES[kind], [f"model.kind={kind}"])
    task, corpus = task_of(recipe), recipe.data.train.generate
    codec = task.fit(TextPairs(list(generate(corpus, recipe.data.train.options or {}))[:20]))
    found = {tuple(texts) for axes in vocabulary_axes(task, codec).values() for texts in axes.values()}
    for name, texts in task.vocabularies(codec).items():
        assert any(one[: len(texts)] == tuple(texts) for one in found), name


def test_a_task_that_does_not_name_its_vocabularies_is_refused_by_name():
    task = task_of(load_recipe("copy", []))
    with pytest.raises(
        ConfigError, match=r"^translation does not say what its ids stand for, so train\.init cannot serve"
    ):
        Task.vocabularies(task, None)


def test_a_language_model_finds_its_embeddings_by_the_text_of_tokens(tmp_path):
    write(tmp_path, "first.txt", ["a b c"] * 20)
    write(tmp_path, "second.txt", ["c d a"] * 20)  # as many tokens, one of them new
    more = ["data.valid={hold_out=2}", "data.test={}", "tokenizer.kind=word"]
    first, _ = train(
        "counting", tmp_path / "first", 'data.train={text="first.txt"}', *more, "train.steps=2", data=tmp_path
    )
    init = [f"train.init={tmp_path / 'first'}", "tokenizer.size=90", *NOTHING]
    second, notes = train(
        "counting", tmp_path / "second", 'data.train={text="second.txt"}', *more, *init, data=tmp_path
    )
    for token in ("a", "c"):
        before, after = embedding_of(tmp_path / "first", first, token), embedding_of(tmp_path / "second", second, token)
        assert torch.equal(before, after), token
    assert any("5 of 6 rows of embedding" in note for note in notes), notes

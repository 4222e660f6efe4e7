"""Runs that begin with the weights of another run (`train.init`)."""

import json
import shutil
from itertools import islice

import msgspec
import numpy as np
import pytest
import torch

import regard
from regard.config import Bitext, DataConfig, TrainConfig
from regard.errors import ConfigError, DataError
from regard.models import MODELS, build_model
from regard.recipe_files import load_recipe
from regard.run.checkpoint import Checkpoint, model_weights
from regard.run.finding import find_run
from regard.run.folder import RunFolder
from regard.tasks import task_of
from regard.tasks.base import Task, dev_loss
from regard.tasks.carry_over import vocabulary_axes
from regard.tasks.corpus import TextPairs
from regard.tasks.initialize import InitialRun, begin_with, fit_codec
from regard.text.generators import generate
from regard.training.events import Noted, Saved, Started
from tests.laws.conftest import SMALL

TINY = [
    *("model.width=16", "model.num_layers=1", "model.num_heads=2", "model.hidden=16", "train.tokens=128"),
    *("train.validate_every=9", "train.checkpoint_every=2", "train.threads=1", "train.device=cpu"),
    "train.validate_pairs=20",
]
NOTHING = ["train.steps=1", "train.lr=0"]  # the weights stay what they were
PARTIAL, BY_TEXT = "train.init_partial=true", "train.init_tokenizer=new"


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
    weights, notes = train("runs", tmp_path / "run", *tagging(tmp_path, init, PARTIAL, *NOTHING), data=tmp_path)
    given = RunFolder(masked).weights()[0].weights
    for name, weight in given.items():
        assert torch.equal(weights[name], weight), name
    [note] = [note for note in notes if note.startswith("initialized")]
    assert note == (
        f"initialized {len(given)} of {len(given) + 2} tensors from {masked}; new: output.weight, output.bias"
    )
    assert "dog" in (tmp_path / "run" / "tokenizer" / "joint.json").read_text()
    assert RunFolder(tmp_path / "run").corpus()["init"]["step"] == 2
    regard.card(tmp_path / "run", evaluated=False)
    assert "| began with | run `run`, step 2, sha256" in (tmp_path / "run" / "card.md").read_text()


def test_rows_of_another_vocabulary_are_found_by_their_text(masked, tmp_path):
    options = [f"train.init={masked}", BY_TEXT, PARTIAL, "tokenizer.size=50", *NOTHING]
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
    options = tagging(tmp_path, f"train.init={own}", PARTIAL, "train.steps=4")
    expected, _ = train("runs", tmp_path / "whole", *options, data=tmp_path)
    asked = iter(range(100))
    train("runs", tmp_path / "run", *options, data=tmp_path, stop=lambda: next(asked) >= 3)
    own.rename(tmp_path / "gone")
    found, notes = train("runs", tmp_path / "run", *options, data=tmp_path)
    assert RunFolder(tmp_path / "run").finished and not any("initialized" in note for note in notes)
    for name, weight in expected.items():
        assert torch.equal(found[name], weight), name


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True], ids=["none written", "damaged"])
def test_a_run_without_an_intact_checkpoint_begins_with_the_other_run_again(tmp_path, damaged):
    """As after a crash before the first checkpoint. If the other run has changed meanwhile, this is refused."""
    own = tmp_path / "init"
    train("copy", own, "train.steps=2")
    options = [f"train.init={own}", "train.steps=4"]
    expected, _ = train("reverse", tmp_path / "whole", *options)
    run = tmp_path / "run"

    def crash(event):
        if isinstance(event, Saved if damaged else Started):
            raise InterruptedError("a crash")

    with pytest.raises(InterruptedError):
        regard.train("reverse", out=run, overrides=[*TINY, *options], listen=crash)
    for file in (run / "checkpoints").glob("*/weights.safetensors"):
        file.write_bytes(b"damaged")
    assert RunFolder(run).exists and RunFolder(run).latest()[0] is None
    own.rename(tmp_path / "gone")
    train("copy", own, "train.steps=3")
    with pytest.raises(DataError, match=f"^{own} has changed since {run} began with it; put it back, or train into"):
        train("reverse", run, *options)
    shutil.rmtree(own)
    (tmp_path / "gone").rename(own)
    found, _ = train("reverse", run, *options)
    for name, weight in expected.items():
        assert torch.equal(found[name], weight), name


def test_a_translation_run_is_fine_tuned(tmp_path):
    first, _ = train("copy", tmp_path / "first", "train.steps=2")
    weights, notes = train("reverse", tmp_path / "second", f"train.init={tmp_path / 'first'}", *NOTHING)
    for name, weight in first.items():
        assert torch.equal(weights[name], weight), name
    assert any(note == f"initialized {len(first)} of {len(first)} tensors from {tmp_path / 'first'}" for note in notes)


@pytest.mark.slow
def test_a_tagger_begins_with_the_encoder_of_a_translation_model(tmp_path):
    first, _ = train("copy", tmp_path / "first", "train.steps=2")
    weights, _ = train("runs", tmp_path / "second", f"train.init={tmp_path / 'first'}", PARTIAL, *NOTHING)
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
    init = [f"train.init={tmp_path / 'first'}", PARTIAL, *NOTHING]
    second, _ = train("runs", tmp_path / "second", 'data.train={pairs="second.tsv"}', *more, *init, data=tmp_path)
    given, taken = first["crf.transitions"], second["crf.transitions"]
    assert torch.equal(taken[:2, :2], given[1:, 1:]) and given.any()  # B and C
    assert not taken[2].any() and not taken[:, 2].any()  # D


@pytest.mark.parametrize("tokenizer", ["same", "new"])
def test_a_classifier_begins_with_a_masked_model_and_finds_labels_by_their_names(tokenizer, tmp_path):
    write(tmp_path, "text.txt", ["a b c"] * 20)
    write(tmp_path, "first.tsv", ["c d a\tX", "a a c\tY"] * 5)
    write(tmp_path, "second.tsv", ["c d a\tY", "a a c\tZ"] * 5)
    more = ["data.valid={hold_out=2}", "data.test={}", "tokenizer.kind=word"]
    text = ['data.train={text="text.txt"}', "tokenizer.size=80", "train.steps=1"]
    masked, _ = train("repeats", tmp_path / "masked", *text, *more, data=tmp_path)
    runs = {}
    for name, before in (("first", "masked"), ("second", "first")):
        init = [f"train.init={tmp_path / before}", f"train.init_tokenizer={tokenizer}", PARTIAL]
        options = [f'data.train={{pairs="{name}.tsv"}}', *init, "tokenizer.size=90", *more, *NOTHING]
        runs[name], _ = train("majority", tmp_path / name, *options, data=tmp_path)
    first, second = runs["first"], runs["second"]
    for token in ("a", "c"):
        before, after = embedding_of(tmp_path / "masked", masked, token), embedding_of(tmp_path / "first", first, token)
        assert torch.equal(before, after), token
    words = json.loads((tmp_path / "first" / "tokenizer" / "joint.json").read_text())
    assert ("b" in words, "d" in words) == ((True, False) if tokenizer == "same" else (False, True))
    # The recipe of the run describes the tokenizer that it has.
    assert RunFolder(tmp_path / "first").recipe().tokenizer.size == (80 if tokenizer == "same" else 90)
    assert torch.equal(second["output.weight"][0], first["output.weight"][1])  # Y
    assert not torch.equal(second["output.weight"][1], first["output.weight"][0])  # Z and X


def test_a_model_of_stories_finds_words_and_answers_by_their_text(tmp_path):
    write(tmp_path, "first.tsv", ["dogs bark | who barks?\tdogs", "cats sleep | who sleeps?\tcats"] * 5)
    write(tmp_path, "second.tsv", ["cows sleep | who sleeps?\tcows", "cats bark | who barks?\tcats"] * 5)
    options = [one for one in TINY if one.startswith(("model.width", "train."))]
    weights = []
    begins = [f"train.init={tmp_path / 'first'}", BY_TEXT, PARTIAL, "train.seed=2"]
    for name, init in (("first", []), ("second", begins)):
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


RECIPES = dict.fromkeys(("transformer", "rnn", "convs2s", "bytenet", "nat", "cmlm", "ctc"), "copy")
RECIPES |= {
    "tagger": "runs",
    "classifier": "majority",
    "masked-lm": "repeats",
    "han": "documents",
    "captioner": "shapes",
}
RECIPES |= {"entnet": "rooms", "reader": "rooms", "decoder": "counting", "pointer": "sort-numbers"}
FAMILIES = dict(RECIPES)  # those with vocabularies
RECIPES |= {"pointer-lstm": "hull-10"} | dict.fromkeys(("ntm", "binary-lstm", "binary-transformer"), "ntm-copy-small")


@pytest.mark.filterwarnings("ignore:model.kind=")
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_vocabulary_is_found_among_the_dimensions_of_parameters(kind):
    recipe = load_recipe(FAMILIES[kind], [f"model.kind={kind}"])
    task, corpus = task_of(recipe), recipe.data.train.generate
    codec = task.fit(TextPairs(list(islice(generate(corpus, recipe.data.train.options or {}), 20))))
    found = {tuple(texts) for axes in vocabulary_axes(task, codec).values() for texts in axes.values()}
    for name, texts in task.vocabularies(codec).items():
        assert any(one[: len(texts)] == tuple(texts) for one in found), name


def test_a_task_that_does_not_name_its_vocabularies_is_refused_by_name():
    task = task_of(load_recipe("copy", []))
    with pytest.raises(
        ConfigError, match=r"^the task translation does not support train\.init \(it defines no vocabularies\)"
    ):
        Task.vocabularies(task, None)


def test_a_language_model_finds_its_embeddings_by_the_text_of_tokens(tmp_path):
    write(tmp_path, "first.txt", ["a b c"] * 20)
    write(tmp_path, "second.txt", ["c d a"] * 20)  # as many tokens, one of them new
    more = ["data.valid={hold_out=2}", "data.test={}", "tokenizer.kind=word"]
    first, _ = train(
        "counting", tmp_path / "first", 'data.train={text="first.txt"}', *more, "train.steps=2", data=tmp_path
    )
    init = [f"train.init={tmp_path / 'first'}", BY_TEXT, *NOTHING]
    second, notes = train(
        "counting", tmp_path / "second", 'data.train={text="second.txt"}', *more, *init, data=tmp_path
    )
    for token in ("a", "c"):
        before, after = embedding_of(tmp_path / "first", first, token), embedding_of(tmp_path / "second", second, token)
        assert torch.equal(before, after), token
    assert any("5 of 6 rows of embedding" in note for note in notes), notes


# What does not fit


def test_what_does_not_fit_is_named_and_refused(masked, tmp_path):
    with pytest.raises(ConfigError) as refused:
        train("runs", tmp_path / "run", *tagging(tmp_path, f"train.init={masked}", *NOTHING), data=tmp_path)
    assert str(refused.value) == (
        f"train.init={masked} does not fit this model (missing there: output.weight, output.bias); describe its model in "
        "[model], or set train.init_partial=true to begin with what fits"
    )
    assert not (tmp_path / "run").exists()


def few_pairs(folder, *options):
    """The options of a translation run with ten pairs."""
    write(folder, "pairs.tsv", ["a b c\tc b a", "b a\ta b"] * 5)
    return [f'data.train={{pairs="pairs.tsv"{"".join(options)}}}', "data.valid={hold_out=2}", "data.test={}"]


def test_tensors_that_are_extra_or_of_another_shape_are_named(tmp_path):
    data = few_pairs(tmp_path)
    train("copy", tmp_path / "first", "train.steps=1", "model.num_layers=2", *data, data=tmp_path)
    init = [f"train.init={tmp_path / 'first'}", *data, *NOTHING]
    with pytest.raises(ConfigError, match=r"\(not in this model: decoder\.1\.\S+, \S+, .* and \d+ more\);"):
        train("copy", tmp_path / "second", *init, data=tmp_path)
    same = ["model.num_layers=2", "model.hidden=24"]
    with pytest.raises(ConfigError, match=r"of another shape: \S*inner\.weight \(24 x 16, there 16 x 16\), "):
        train("copy", tmp_path / "second", *init, *same, data=tmp_path)
    _, notes = train("copy", tmp_path / "second", *init, PARTIAL, *same, data=tmp_path)
    assert any("initialized" in note and "new: " in note for note in notes)


def test_labels_that_the_other_run_knows_keep_its_output_layer(tmp_path):
    write(tmp_path, "first.tsv", ["a b c\tA B C", "c a b\tC A B"] * 5)
    write(tmp_path, "second.tsv", ["b c a\tC B C", "c b b\tC B B"] * 5)
    more = ["data.valid={hold_out=2}", "data.test={}"]
    first, _ = train(
        "runs", tmp_path / "first", 'data.train={pairs="first.tsv"}', *more, "train.steps=2", data=tmp_path
    )
    init = [f"train.init={tmp_path / 'first'}", *NOTHING]
    second, _ = train("runs", tmp_path / "second", 'data.train={pairs="second.tsv"}', *more, *init, data=tmp_path)
    assert all(torch.equal(second[name], weight) for name, weight in first.items()) and len(second) == len(first)


def test_tags_are_added_to_the_tokens_of_the_other_run(tmp_path):
    """A corpus with a tag has one more row of the embedding than the run that it begins with."""
    first, _ = train("copy", tmp_path / "first", "train.steps=2", *few_pairs(tmp_path), data=tmp_path)
    init = [f"train.init={tmp_path / 'first'}", *NOTHING]
    second, notes = train("copy", tmp_path / "second", *few_pairs(tmp_path, ', tag="mine"'), *init, data=tmp_path)
    given, taken = first["target_embedding"], second["target_embedding"]
    assert torch.equal(taken[:-1], given) and len(taken) == len(given) + 1
    assert any(f"{len(given):,} of {len(taken):,} rows of target_embedding" in note for note in notes), notes
    before, after = (RunFolder(tmp_path / name).recipe().tokenizer for name in ("first", "second"))
    assert before == after


@pytest.mark.slow
def test_a_model_of_the_package_is_a_beginning(tmp_path):
    recipe = find_run("de-en").recipe()
    write(tmp_path, "pairs.tsv", ["Das ist ein Haus .\tThis is a house .", "Guten Morgen\tGood morning"] * 3)
    data = DataConfig(train=Bitext(pairs=str(tmp_path / "pairs.tsv")))
    config = TrainConfig(init="de-en", steps=1, lr=0.0, tokens=256, threads=1, device="cpu")
    begun = msgspec.structs.replace(recipe, name="mine", data=data, train=config)
    regard.train(begun, out=tmp_path / "run", listen=lambda event: None)
    sentence = ["Ein Mann geht auf der Straße ."]
    assert regard.load(tmp_path / "run").predict(sentence) == regard.load("de-en").predict(sentence)


@pytest.mark.filterwarnings("ignore:model.kind=")
@pytest.mark.parametrize("kind", MODELS.names())
def test_a_run_begins_with_the_loss_of_the_other_one(kind, tmp_path):
    """The second run has other text, so a codec of its own would have other ids."""
    recipe = load_recipe(RECIPES[kind], [f"model.kind={kind}", f"train.init={tmp_path}"])
    task = task_of(msgspec.structs.replace(recipe, model={"kind": kind, **SMALL[kind]}))
    pairs = list(islice(generate(recipe.data.train.generate, recipe.data.train.options or {}), 12))
    codec = task.fit(TextPairs(pairs))
    first, second = (small_model(task, codec, seed) for seed in (1, 2))
    initial = InitialRun(RunFolder(tmp_path), task, codec, Checkpoint(model_weights(first)), "final")
    taken = fit_codec(task, TextPairs(pairs[3:9]), initial)
    beginning = begin_with(second, task, taken, initial)
    assert beginning.new == ()
    losses = []
    for model, own in ((first, codec), (second, taken)):
        columns = task.extras(model, task.encode(pairs, codec))(task.encode(pairs[3:9], own))
        losses.append(dev_loss(model, [task.collate(columns, np.arange(6))], torch.device("cpu")))
    assert losses[0] == losses[1]


def small_model(task, codec, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_model(task.recipe.model, **task.sizes(codec)).eval()

"""Masked language models: what is hidden, what is predicted, and how it is scored."""

import numpy as np
import pytest
import torch

import regard
from regard.config import EvaluateConfig
from regard.data.batch import NO_LABEL
from regard.explain.trace import TraceOptions
from regard.metrics import masked_accuracy
from regard.models.masked_lm import hidden_places
from regard.recipe_files import load_recipe
from regard.tasks import task_of
from regard.tasks.corpus import TextPairs
from regard.tasks.masked_lm import MASK
from regard.tasks.recipe_checks import resolve
from regard.tasks.setup import fresh_model
from regard.text.corpus import Pair
from regard.text.tokenizer import UNK
from regard.text.words import MASK_CHARACTER

LINES = ["The dog sees a cat.", "a cat sleeps", "dogs and cats sleep here"]
TRAIN = TextPairs([Pair(line, line) for line in LINES] * 200)


@pytest.fixture
def task():
    small = ["model.width=16", "model.num_heads=2", "model.hidden=16", "model.num_layers=1", "model.characters=4"]
    return task_of(resolve(load_recipe("repeats", small)))


def test_fifteen_in_a_hundred_tokens_are_chosen_and_eight_in_ten_of_them_masked(task):
    columns = task.dataset(TRAIN, task.fit(TRAIN))
    words, source, labels = (columns[name].values for name in ("words", "source", "labels"))
    chosen = labels != NO_LABEL
    assert chosen.mean() == pytest.approx(0.15, abs=0.02)
    assert (labels[chosen] == words[chosen]).all() and (source[~chosen] == words[~chosen]).all()
    assert (source[chosen] == MASK).mean() == pytest.approx(0.8, abs=0.06)
    # One in ten is replaced by a random word, which may be the same.
    assert 0.04 < ((source != MASK) & (source != words))[chosen].mean() < 0.16


def test_a_hidden_word_hides_its_characters_too(task):
    codec = task.fit(TRAIN)
    columns = task.dataset(TRAIN, codec)
    source, characters = columns["source"].values, columns["characters"].values
    assert (characters[source == MASK] == [MASK_CHARACTER, 0, 0, 0]).all()
    changed = (source != MASK) & (source != columns["words"].values)
    assert changed.any()
    spelled = codec.words.spell(codec.tokenizer.tokens(source[changed].tolist()), 4)
    assert (characters[changed] == spelled).all()


def test_masks_follow_from_seed_and_epoch_alone(task):
    codec = task.fit(TRAIN)
    dataset = task.dataset(TRAIN, codec)
    epochs, again = task.epochs(TRAIN, dataset, codec), task.epochs(TRAIN, dataset, codec)
    # In another order, as in a run that resumes.
    first, second = epochs(0)["source"].values, epochs(1)["source"].values
    assert (again(1)["source"].values == second).all() and (again(0)["source"].values == first).all()
    assert (first == dataset["source"].values).all() and not (first == second).all()
    dev = task.encode(TRAIN.pairs, codec)["source"].values
    assert (dev == task.encode(TRAIN.pairs, codec)["source"].values).all() and not (dev == first).all()


def test_an_unknown_word_is_never_a_label(task):
    codec = task.fit(TRAIN)
    columns = task.encode([Pair("zebras sleep", "")] * 500, codec)
    labels = columns["labels"].values
    assert (
        (columns["words"].values[::2] == UNK).all() and (labels[::2] == NO_LABEL).all() and (labels != NO_LABEL).any()
    )


def test_masks_are_replaced_by_words_and_the_rest_stays(task):
    codec = task.fit(TRAIN)
    predictor = task.predictor(fresh_model(task.recipe, task.sizes(codec), added=0).eval(), codec)
    texts = ["The [MASK] sees a [MASK].", "", "Dogs sleep"]
    outputs = predictor.predict(texts)
    words = outputs[0].split()
    assert [words[0], *words[2:4], words[5]] == ["The", "sees", "a", "."] and "[MASK]" not in words
    assert outputs[1] == "" and outputs[2].split()[1] == "sleep"
    assert outputs == [predictor.predict([text])[0] for text in texts]
    trace = task.trace(predictor, texts[0], TraceOptions(alternatives=2))
    assert trace.source.tokens == ["The", "[MASK]", "sees", "a", "[MASK]", "."]
    assert trace.target.tokens == [words[1], words[4]] and [len(one) for one in trace.alternatives] == [2, 2]
    assert trace.attentions[0].weights.shape == (2, 6, 6)


def test_masked_accuracy_by_hand():
    # Of the words that are hidden, "cat" and "mat", one is right; case does not count.
    found = masked_accuracy(
        ["The Cat is on the bed ."], ["The cat is on the mat."], ["The [MASK] is on the [MASK]."], EvaluateConfig()
    )
    assert found[0] == 50.0
    # Of three words of plain text the second is hidden.
    assert masked_accuracy(["x b y"], ["a b c"], ["a b c"], EvaluateConfig())[0] == 100.0


def test_the_loss_is_that_of_hidden_words_alone_for_static_shapes_too(task):
    labels = torch.tensor([NO_LABEL, 4, NO_LABEL, 7, NO_LABEL])
    assert hidden_places(labels, static=False).tolist() == [1, 3]
    assert hidden_places(labels, static=True).tolist() == [1, 3, 0, 2, 4]
    many = torch.full((1000,), NO_LABEL)
    many[::8] = 1
    found = hidden_places(many, static=True)
    assert len(found) == 314 and set(found[:125].tolist()) == set(range(0, 1000, 8))


def test_subwords_can_be_hidden_too(tmp_path):
    small = ["model.width=16", "model.num_heads=2", "model.hidden=16", "model.num_layers=1", "train.steps=2"]
    more = ["tokenizer.kind=bpe", "tokenizer.size=24", "train.tokens=64", "train.threads=1", "train.validate_pairs=4"]
    regard.train("repeats", out=tmp_path / "run", overrides=[*small, *more], listen=lambda event: None)
    (output,) = regard.load(tmp_path / "run", device="cpu").predict(["a b [MASK] b"])
    assert len(output.split()) == 4 and np.array(output.split())[[0, 1, 3]].tolist() == ["a", "b", "b"]

"""Built-in corpora: options, and fresh examples for each epoch."""

from collections import Counter
from random import Random

import pytest

from regard.config import Bitext, Struct
from regard.errors import ConfigError, DataError
from regard.recipe_files import load_recipe
from regard.tasks import task_of
from regard.text.bitext import load_bitext
from regard.text.draws import shuffled
from regard.text.generators import GENERATORS, Generator, generate


class CountingOptions(Struct, frozen=True):
    count: int = 3


@pytest.fixture
def counting(monkeypatch):
    """A corpus of numbers that go on from epoch to epoch."""

    def make(split, options, epoch):
        first = epoch * options.count if split == "train" else 0
        return [(str(number), str(number)) for number in range(first, first + options.count)]

    monkeypatch.setitem(GENERATORS, "counting", Generator(make, CountingOptions, fresh=True))


def recipe(**train):
    overrides = [f"data.train={{generate='counting/train', {', '.join(f'{k}={v}' for k, v in train.items())}}}"]
    return load_recipe("copy", [*overrides, "data.valid={generate='counting/valid'}", "tokenizer.kind='word'"])


def test_a_corpus_has_the_size_that_its_options_name(counting):
    bitext = Bitext(generate="counting/train", options={"count": 2})
    assert [pair.source for pair in load_bitext(bitext, folders=[])] == ["0", "1"]


def test_an_unknown_option_is_refused_with_the_nearest_one(counting):
    with pytest.raises(ConfigError, match="options of counting/train has no field 'counts'; did you mean 'count'"):
        list(generate("counting/train", {"counts": 2}))


def test_every_epoch_has_new_examples_if_the_recipe_asks_for_them(counting):
    task = task_of(recipe(fresh="true", options="{count=4}"))
    corpus = task.read([])
    codec = task.fit(corpus.train)
    epochs = task.epochs(corpus.train, task.dataset(corpus.train, codec), codec)
    assert [pair.source for pair in corpus.train.of_epoch(2)] == ["8", "9", "10", "11"]
    assert len(epochs(0)) == len(epochs(2)) == 4


def test_a_corpus_that_is_always_the_same_cannot_be_fresh():
    task = task_of(load_recipe("copy", ["data.train={generate='copy/train', fresh=true}"]))
    with pytest.raises(DataError, match="copy/train is the same in every epoch; leave out fresh"):
        task.read([])


def test_options_without_a_built_in_corpus_are_refused():
    with pytest.raises(ValueError, match="are for a built-in corpus"):
        Bitext(pairs="a.tsv", fresh=True)


def test_a_task_that_the_model_is_not_for_is_refused():
    with pytest.raises(ConfigError, match=r"task is .tagging., but model\.kind=transformer is for"):
        task_of(load_recipe("copy", ["task=tagging"]))
    assert task_of(load_recipe("copy", ["task=translation"])).name == "translation"


@pytest.mark.parametrize("name", GENERATORS)
def test_an_unknown_split_is_refused_with_the_nearest_one(name):
    with pytest.raises(DataError, match=f"corpus {name} has no split 'validation'; did you mean 'valid'"):
        generate(f"{name}/validation", {})


def test_an_unknown_corpus_is_refused_with_the_nearest_one():
    with pytest.raises(DataError, match="no built-in corpus 'revers'; did you mean 'reverse'"):
        generate("revers/train", {})


@pytest.mark.parametrize(
    "name",
    [
        "copy",
        "sort-numbers",
        "repeats",
        "counting",
        "join",
        "table",
        "names",
        "expressions",
        "shapes",
        "rooms",
        "reviews",
    ],
)
def test_a_corpus_uses_no_method_of_random_that_later_versions_of_python_may_change(name, monkeypatch):
    """Python guarantees the same numbers in later versions for random() only."""

    class OnlyRandom:
        def __init__(self, seed):
            self.random = Random(seed).random

    options = {"shapes": {"count": 5}}.get(name, {})
    expected = list(generate(f"{name}/valid", options))
    monkeypatch.setattr("random.Random", OnlyRandom)
    assert list(generate(f"{name}/valid", options)) == expected


def test_a_shuffle_gives_every_order_equally_often():
    counts = Counter("".join(shuffled(Random(seed), "abc")) for seed in range(6000))
    # One standard deviation of 1,000 is 29.
    assert len(counts) == 6 and all(abs(count - 1000) < 150 for count in counts.values())

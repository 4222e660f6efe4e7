"""Several corpora as stores of ids: prepared together, and trained on like their text."""

import itertools

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.data import batch_sampler
from regard.data.batch import ADDED, collate_pairs
from regard.data.batch_sampler import Loader, Position
from regard.data.mixing import DrawnPairs, JoinedPairs, Mixture
from regard.data.packing import PackedLoader
from regard.data.pair_store import PairStore
from regard.errors import ConfigError, DataError
from regard.preprocess.prepare import prepare, store_problems
from regard.recipe_files import load_recipe
from tests.preprocess.conftest import RECIPE, lines

SEVERAL = RECIPE.replace(
    'train = { pairs = "train.tsv" }',
    """max_length = 9
[[data.train]]
pairs = "news.tsv"
weight = 0.6
tag = "<news>"
[[data.train]]
pairs = "talks.tsv"
until = 7
[[data.train]]
pairs = "talks.tsv"
weight = 2
tag = "<talks>"
from = 4
""",
)
STORES = [f"data.train.{number}.store=ids/{number}" for number in range(3)]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "news.tsv").write_text("".join(lines(700, seed=1)))
    (tmp_path / "talks.tsv").write_text("".join(lines(400, seed=2)))
    (tmp_path / "my.toml").write_text(SEVERAL)
    return tmp_path


@pytest.fixture
def stores(folder, small_shards):
    recipe, made = load_recipe(str(folder / "my.toml")), []
    for number in range(3):
        first = made[0] if made else None
        made.append(prepare(recipe, folder / "ids" / str(number), folders=[folder], first=first, number=number))
    return made


def train(folder, run, *overrides, **settings):
    settings = {"listen": lambda event: None, **settings}
    return regard.train(str(folder / "my.toml"), out=folder / run, overrides=overrides, data=folder, **settings)


def weights(folder, run):
    return load_file(folder / run / "final" / "weights.safetensors")


def test_stores_are_made_with_one_tokenizer_and_their_own_tags(stores):
    assert [len(store) for store in stores] == [700, 400, 400]
    assert len({store.info.tokenizer_sha256 for store in stores}) == 1
    assert [store.info.tags for store in stores] == [("<news>",), (), ("<talks>",)]
    tokenizers = stores[2].tokenizers(load_recipe("reverse", ["tokenizer.kind=bpe", "tokenizer.size=80"]).tokenizer)
    tag = tokenizers.tags["<talks>"]
    rows = np.arange(400)
    (with_tag, _), (without, _) = (store.encoded(tokenizers).read([rows]) for store in (stores[2], stores[1]))
    for row in rows.tolist():
        assert with_tag["source"][row] == [tag, *without["source"][row]]
        assert with_tag["target"][row] == without["target"][row]
    assert all(not list(store_problems(store)) for store in stores)


@pytest.mark.slow(unless=["all"])
@pytest.mark.parametrize("some", [STORES, STORES[:1], STORES[1:]], ids=["all", "the first", "the others"])
def test_stores_and_their_text_train_to_equal_weights(folder, stores, some, monkeypatch):
    monkeypatch.setattr(batch_sampler, "EXAMPLES_PER_BLOCK", 300)
    train(folder, "text")
    train(folder, "stored", *some)
    text, stored = weights(folder, "text"), weights(folder, "stored")
    assert all(torch.equal(text[name], stored[name]) for name in text)


def test_a_run_on_stores_resumes_in_the_middle_of_a_stage(folder, stores):
    train(folder, "uninterrupted", *STORES)
    steps = iter([False] * 6)
    assert not train(folder, "parts", *STORES, stop=lambda: next(steps, True)).finished
    assert train(folder, "parts", *STORES).finished
    uninterrupted, parts = weights(folder, "uninterrupted"), weights(folder, "parts")
    assert all(torch.equal(uninterrupted[name], parts[name]) for name in uninterrupted)


@pytest.mark.parametrize("kind", [Loader, PackedLoader])
def test_batches_of_a_mixture_of_stores_have_the_drawn_pairs_and_resume_anywhere(stores, kind, monkeypatch):
    monkeypatch.setattr(batch_sampler, "EXAMPLES_PER_BLOCK", 300)
    recipe = load_recipe("reverse", ["tokenizer.kind=bpe", "tokenizer.size=80"])
    tokenizers = stores[0].tokenizers(recipe.tokenizer)
    pairs = JoinedPairs([store.encoded(tokenizers) for store in stores])
    mixture = Mixture([700, 400, 400], [0.6, None, 2], seed=5)

    def loader():
        return kind(
            lambda epoch: DrawnPairs(pairs, mixture, epoch),
            collate_pairs,
            added=ADDED,
            budget=256,
            max_length=99,
            seed=5,
        )

    plan = [loader().plan(1, block) for block in range(4)]
    assert all(blocks == 4 for _, _, blocks in plan)  # 379 + 721 pairs: 420 and 800 of 1,220, times 1,100
    places = np.concatenate([np.concatenate(batches) for _, batches, _ in plan]).tolist()
    assert len(set(places)) == len(places)
    # What is left at the end of a block goes into no packed batch, but is there in another epoch.
    assert set(places) == set(range(1100)) if kind is Loader else len(places) > 1000
    uninterrupted = loader().batches(Position())
    position = Position(1, 2, 1)
    next(after for _, after in uninterrupted if after == position)
    for (one, here), (other, there) in itertools.islice(
        zip(uninterrupted, loader().batches(position), strict=False), 40
    ):
        assert here == there and one.as_lists() == other.as_lists()


def test_preparing_resumes_and_refuses_other_corpora(folder, stores):
    again = prepare(load_recipe(str(folder / "my.toml")), folder / "ids/1", folders=[folder], first=stores[0], number=1)
    assert again.info == stores[1].info
    other = load_recipe(str(folder / "my.toml"), ["data.train.0.tag='<other>'"])
    with pytest.raises(ConfigError, match="tags"):
        prepare(other, folder / "ids/1", folders=[folder], first=stores[0], number=1)


def test_mistakes_are_named(folder, stores):
    with pytest.raises(
        ConfigError, match=r"the sources in .*0 have the tags <news>, but those of the recipe have <old>"
    ):
        train(folder, "run", *STORES, "data.train.0.tag='<old>'")
    with pytest.raises(DataError, match=r"was prepared without the tag '<old>'; prepare it with this recipe"):
        train(folder, "run", STORES[0], "data.train.2.tag='<old>'")
    alone = load_recipe(str(folder / "my.toml"), ["data.train={pairs='talks.tsv'}"])
    prepare(alone, folder / "alone", folders=[folder])
    with pytest.raises(
        DataError, match=r"0 and .*alone were prepared with different tokenizers; prepare them together"
    ):
        train(folder, "run", STORES[0], "data.train.1.store=alone")
    stream = load_recipe(str(folder / "my.toml"), ["data.train.1.pairs='-'"])
    with pytest.raises(ConfigError, match="standard input is one corpus; to prepare several, name files in each entry"):
        prepare(stream, folder / "stream", folders=[folder])
    assert not (folder / "run").exists() and isinstance(stores[0], PairStore)

"""Training on a store equals training on its text, and reads no more of the store than necessary."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.data import batch_sampler
from regard.data.batch import ADDED, collate_pairs
from regard.data.batch_sampler import Loader, Position
from regard.data.batch_structure import SAMPLE
from regard.data.packing import PackedLoader
from regard.data.pair_store import PairStore, StoredPairs
from regard.data.shuffle import Shuffle
from regard.errors import ConfigError, DataError
from regard.recipe_files import load_recipe
from tests.preprocess.conftest import PAIRS


def train(folder, run, *overrides, **settings):
    regard.train(str(folder / "my.toml"), out=folder / run, overrides=overrides, data=folder, **settings)
    return load_file(folder / run / "final" / "weights.safetensors")


@pytest.mark.slow
def test_a_store_and_its_text_train_to_equal_weights(make, folder, monkeypatch):
    monkeypatch.setattr(batch_sampler, "EXAMPLES_PER_BLOCK", 400)
    make()
    text = train(folder, "text", "train.steps=60")
    stored = train(folder, "stored", "train.steps=60", "data.train.store=ids")
    assert text.keys() == stored.keys() and all(torch.equal(text[name], stored[name]) for name in text)


def test_a_run_resumes_with_its_own_store_only(make, folder):
    store = make()
    train(folder, "complete", "train.steps=6", "data.train.store=ids")
    run = regard.train(
        str(folder / "my.toml"), out=folder / "run", overrides=["data.train.store=ids"], data=folder, stop=lambda: True
    ).run
    # It was stopped before its first step.
    assert not run.exists
    steps = iter([False, False, False])
    regard.train(
        str(folder / "my.toml"),
        out=folder / "run",
        overrides=["data.train.store=ids"],
        data=folder,
        stop=lambda: next(steps, True),
    )
    assert run.corpus()["train"] == {"pairs": PAIRS, "sha256": store.info.sha256}
    (folder / "ids").rename(folder / "moved")
    (folder / "train.tsv").write_text("".join(f"a b\tb {number}\n" for number in range(600)))
    make()
    with pytest.raises(DataError, match=r"the text has changed since .*run was begun"):
        train(folder, "run", "data.train.store=ids")


class Counted(StoredPairs):
    """Records which rows were read."""

    def __init__(self, store):
        super().__init__(store)
        self.lengths, self.ids = set(), set()

    def lengths_of(self, rows):
        self.lengths |= set(rows.tolist())
        return super().lengths_of(rows)

    def read(self, batches):
        self.ids |= {row for batch in batches for row in batch.tolist()}
        return super().read(batches)


@pytest.mark.parametrize("kind", [Loader, PackedLoader])
def test_resuming_reads_only_the_current_block(make, monkeypatch, kind):
    monkeypatch.setattr(batch_sampler, "EXAMPLES_PER_BLOCK", 230)
    sides = Counted(make())
    loader = kind(lambda epoch: sides, collate_pairs, added=ADDED, budget=256, max_length=50, seed=3)
    # The shapes of batches need a few rows at most, to see what a batch consists of.
    assert sides.ids <= sides.lengths <= set(range(SAMPLE))
    sides.lengths.clear()
    sides.ids.clear()
    next(loader.batches(Position(0, 7, 2)))
    assert sides.lengths == set(Shuffle(PAIRS, (3, 0))[7 * 230 : 8 * 230].tolist())
    _, plan, _ = loader.plan(0, 7)
    assert sides.ids == set(np.concatenate(plan[2:]).tolist())


def test_one_shard_is_read_at_a_time(make, monkeypatch):
    store, opened = make(), []
    before = PairStore.side
    monkeypatch.setattr(
        PairStore, "side", lambda self, side, shard, *rest: opened.append(shard) or before(self, side, shard, *rest)
    )
    rows = np.array([2_200, 3, 501, 4])
    sides, (places,) = StoredPairs(store).read([rows])
    assert opened == [0, 1, 4, 0, 1, 4]
    source, target = StoredPairs(store).lengths_of(rows)
    assert [len(sides["source"][place]) for place in places] == source.tolist()
    assert [len(sides["target"][place]) for place in places] == target.tolist()


def test_totals_up_to_a_length_need_no_rows(make):
    store = make()
    everything = np.arange(PAIRS)
    source, target = StoredPairs(store).lengths_of(everything)
    for most in (0, 3, 10, 1_000):
        kept = np.maximum(source, target) <= most
        found = StoredPairs(store).upto(most)
        longest = np.maximum(source, target)[kept].max(initial=0)
        assert (found.examples, found.longest) == (kept.sum(), longest)
        assert found.tokens == (source[kept].sum(), target[kept].sum())


def test_settings_that_a_store_cannot_serve_are_refused(make, folder):
    make()
    with pytest.raises(
        ConfigError, match=r"tokenizer.size is 90, but .*ids was prepared with 80; set tokenizer.size=80"
    ):
        train(folder, "run", "data.train.store=ids", "tokenizer.size=90")
    with pytest.raises(ConfigError, match=r"ids on disk are the same every epoch; set tokenizer.sampling=0"):
        train(folder, "run", "data.train.store=ids", "tokenizer.sampling=0.1")
    with pytest.raises(DataError, match=r"no store 'idz' in .*; make one with: regard data prepare"):
        train(folder, "run", "data.train.store=idz")
    with pytest.raises(DataError, match="every example has a sequence of more than 0 tokens"):
        train(folder, "run", "data.train.store=ids", "data.max_length=0")
    with pytest.raises(DataError, match="holds ids to train on, not text"):
        train(folder, "run", 'data.valid={store="ids"}')
    assert not (folder / "run").exists()


def test_damage_is_found_when_a_store_is_opened(make, folder):
    make()
    path = folder / "ids" / "shard-00001" / "source.ids"
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(
        DataError, match=rf"shard-00001/source.ids has {len(content) - 1:,} bytes, not {len(content):,}"
    ):
        PairStore(folder / "ids")
    path.unlink()
    with pytest.raises(DataError, match=r"shard-00001/source.ids is missing"):
        PairStore(folder / "ids")
    path.write_bytes(content)
    info = folder / "ids" / "store.json"
    text = info.read_text()
    info.write_text(text.replace(f'"pairs": {PAIRS}', f'"pairs": {PAIRS - 1}'))
    with pytest.raises(DataError, match=r"store.json is damaged: it is not what was written"):
        PairStore(folder / "ids")
    info.write_text(text[:100])
    with pytest.raises(DataError, match=r"store.json is damaged"):
        PairStore(folder / "ids")
    info.unlink()
    with pytest.raises(DataError, match="ids is half prepared; resume it with: regard data prepare RECIPE --out"):
        PairStore(folder / "ids")


def test_a_recipe_may_name_both_text_and_store(folder):
    recipe = load_recipe(str(folder / "my.toml"), ["data.train.store=ids"])
    assert (recipe.data.train.pairs, recipe.data.train.store) == ("train.tsv", "ids")

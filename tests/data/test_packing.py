"""Fixed-shape batches: full, whole, in an order that a seed and an epoch decide."""

import numpy as np
import pytest
import torch

from regard.data.lengths import LengthTable
from regard.data.loader import gather
from regard.data.order import Position, Sides
from regard.data.packing import NO_LABEL, PackedLoader, Shape, fill, shape_for, unpack
from regard.data.store import IdStore
from regard.errors import ConfigError, DataError


def sides_of(num_pairs, *, seed=0, median=24):
    """Lengths as of news text: log-normal, clipped to 4 and 120."""
    random = np.random.default_rng(seed)
    stores = []
    for _ in range(2):
        lengths = np.clip(random.lognormal(np.log(median), 0.6, num_pairs).round(), 4, 120).astype(int)
        ids = random.integers(3, 1000, lengths.sum()).astype(np.int32)
        stores.append(IdStore(ids, np.concatenate([[0], lengths.cumsum()])))
    return Sides(*stores)


def loader_of(sides, budget=8192, **settings):
    return PackedLoader(lambda epoch: sides, budget=budget, max_length=150, seed=1, **settings)


@pytest.mark.parametrize(("num_pairs", "budget"), [(20_000, 25_600), (20_000, 8_192)])
def test_less_than_two_percent_of_either_side_is_dummies(num_pairs, budget):
    sides = sides_of(num_pairs)
    loader = loader_of(sides, budget)
    _, plan, _ = loader.plan(0)
    source = np.mean([(sides.source.lengths[chosen] + 1).sum() for chosen in plan]) / loader.shape.source_tokens
    target = np.mean([(sides.target.lengths[chosen] + 1).sum() for chosen in plan]) / loader.shape.target_tokens
    assert source > 0.98 and target > 0.98
    assert sum(map(len, plan)) > 0.97 * num_pairs  # less than a batch is left out


def test_no_sentence_comes_twice_in_an_epoch_and_every_batch_fits():
    sides = sides_of(5_000)
    loader = loader_of(sides)
    _, plan, _ = loader.plan(3)
    everyone = np.concatenate(plan)
    assert len(everyone) == len(set(everyone.tolist()))
    for chosen in plan:
        assert (sides.source.lengths[chosen] + 1).sum() <= loader.shape.source_tokens
        assert (sides.target.lengths[chosen] + 1).sum() <= loader.shape.target_tokens
        assert len(chosen) < loader.shape.sentences


def test_a_row_holds_the_batch_that_its_pairs_make():
    sides = sides_of(1_000)
    loader = loader_of(sides)
    rows, _ = next(loader.rows(Position()))
    for row, chosen in zip(rows[:3], loader.plan(0)[1], strict=False):
        packed, plain = unpack(row, loader.shape, int(row[-1])), gather(sides, chosen)
        real = plain.num_tokens
        assert packed.num_tokens == real
        assert torch.equal(packed.labels[:real].long(), plain.labels)
        assert (packed.labels[real:] == NO_LABEL).all()
        for ours, theirs in ((packed.source, plain.source), (packed.target, plain.target)):
            tokens = theirs.layout.total
            assert torch.equal(ours.values[:tokens].long(), theirs.values)
            assert torch.equal(ours.layout.positions[:tokens].long(), theirs.layout.positions)
            assert torch.equal(ours.layout.sentences[:tokens].long(), theirs.layout.sentences)
            assert torch.equal(ours.layout.offsets[: len(chosen) + 1], theirs.layout.offsets)
            assert (ours.layout.sentences[tokens:] == len(chosen)).all()  # the dummies are a sentence of their own
            assert ours.layout.offsets[-1] == len(ours.values)


def test_batches_go_on_from_any_position():
    loader = loader_of(sides_of(2_000))
    batches = loader.batches(Position())
    first = [next(batches) for _ in range(20)]
    assert first[-1][1].epoch > 0  # past the end of an epoch
    again = loader.batches(first[4][1])
    for batch, position in first[5:]:
        other, other_position = next(again)
        assert torch.equal(batch.row, other.row) and position == other_position


def test_a_corpus_smaller_than_a_batch_makes_one():
    loader = loader_of(sides_of(10))
    assert [len(chosen) for chosen in loader.plan(0)[1]] == [10]


def test_the_smaller_side_gets_fewer_tokens():
    shape = shape_for(LengthTable.of(np.full(100, 10), np.full(100, 20)).upto(), 1280)
    assert (shape.source_tokens, shape.target_tokens) == (640, 1280)
    shape = shape_for(LengthTable.of(np.full(100, 20), np.full(100, 10)).upto(), 1280)
    assert (shape.source_tokens, shape.target_tokens) == (1280, 640)


@pytest.mark.parametrize("seed", range(5))
def test_no_sentence_of_a_later_batch_would_have_fitted_into_an_earlier_one(seed):
    random = np.random.default_rng(seed)
    source, target = random.integers(2, 12, 60), random.integers(2, 12, 60)
    shape = Shape(source_tokens=40, target_tokens=40, sentences=30, longest=12)
    batches = fill(source, target, shape, random, all_of_them=True)
    assert sorted(np.concatenate(batches).tolist()) == list(range(60))
    for number, batch in enumerate(batches):
        room = 40 - source[batch].sum(), 40 - target[batch].sum()
        later = np.concatenate([*batches[number + 1 :], []]).astype(int)
        assert not ((source[later] <= room[0]) & (target[later] <= room[1])).any()


def test_a_sentence_longer_than_a_batch_is_told():
    with pytest.raises(ConfigError, match=r"train\.tokens is 10 but a sentence has 21 tokens"):
        shape_for(LengthTable.of(np.array([21]), np.array([3])).upto(), 10)
    with pytest.raises(DataError, match="every pair has a side of more than 2 tokens"):
        PackedLoader(lambda epoch: sides_of(5), budget=100, max_length=2, seed=1)

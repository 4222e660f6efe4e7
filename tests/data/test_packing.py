"""Packed batches: full, of static shapes, and in an order that follows from seed and epoch."""

import hashlib
from itertools import islice

import numpy as np
import pytest
import torch

from regard.data.batch import ADDED, NO_LABEL, collate_pairs, make_batch
from regard.data.batch_sampler import Position
from regard.data.columns import Column, pair_columns
from regard.data.packed_rows import largest_rectangle, unpack
from regard.data.packed_shapes import one_shape, pair_shape
from regard.data.packing import PackedLoader, fill
from regard.data.word_alignment import Aligner
from regard.errors import ConfigError, DataError


def sides_of(num_pairs, *, seed=0, median=24):
    """Pairs with lengths as in news text: log-normal, clipped to 4 and 120."""
    random = np.random.default_rng(seed)
    stores = []
    for _ in range(2):
        lengths = np.clip(random.lognormal(np.log(median), 0.6, num_pairs).round(), 4, 120).astype(int)
        ids = random.integers(3, 1000, lengths.sum()).astype(np.int32)
        stores.append(Column(ids, np.concatenate([[0], lengths.cumsum()])))
    return pair_columns(*stores)


def loader_of(sides, budget=8192, **settings):
    return PackedLoader(
        lambda epoch: sides, collate_pairs, added=ADDED, budget=budget, max_length=150, seed=1, **settings
    )


def shape_of(source_lengths, target_lengths, budget):
    """The shape of batches of pairs that have these lengths, without EOS."""
    sides = pair_columns(*(Column.from_lists([[7] * one for one in side]) for side in (source_lengths, target_lengths)))
    (shape,) = one_shape(sides, pair_shape(0, 0, 0, 0).structure, 150, budget)
    return shape


@pytest.mark.parametrize(("num_pairs", "budget"), [(20_000, 25_600), (20_000, 8_192)])
def test_less_than_two_percent_of_the_tokens_are_dummies(num_pairs, budget):
    sides = sides_of(num_pairs)
    loader = loader_of(sides, budget)
    _, plan, _ = loader.plan(0)
    source = np.mean([(sides["source"].lengths[chosen] + 1).sum() for chosen in plan]) / loader.shapes[0].tokens(
        "source"
    )
    target = np.mean([(sides["target"].lengths[chosen] + 1).sum() for chosen in plan]) / loader.shapes[0].tokens(
        "target"
    )
    assert source > 0.98 and target > 0.98
    assert sum(map(len, plan)) > 0.97 * num_pairs  # less than a batch is left out


def test_no_sentence_occurs_twice_in_an_epoch_and_every_batch_fits_its_shape():
    sides = sides_of(5_000)
    loader = loader_of(sides)
    _, plan, _ = loader.plan(3)
    everyone = np.concatenate(plan)
    assert len(everyone) == len(set(everyone.tolist()))
    for chosen in plan:
        assert (sides["source"].lengths[chosen] + 1).sum() <= loader.shapes[0].tokens("source")
        assert (sides["target"].lengths[chosen] + 1).sum() <= loader.shapes[0].tokens("target")
        assert len(chosen) < loader.shapes[0].examples


def test_a_packed_row_holds_the_batch_of_its_pairs():
    sides = sides_of(1_000)
    loader = loader_of(sides)
    rows = next(loader.blocks_of_rows(Position())).rows
    for row, chosen in zip(rows[:3], loader.plan(0)[1], strict=False):
        packed, plain = unpack(row, loader.shapes[0], int(row[-1])), collate_pairs(sides, chosen)
        real = plain.num_tokens
        assert packed.num_tokens == real
        assert torch.equal(packed.labels.values[:real].long(), plain.labels.values)
        assert (packed.labels.values[real:] == NO_LABEL).all()
        for ours, theirs in ((packed.source, plain.source), (packed.target, plain.target)):
            tokens = theirs.layout.total
            assert torch.equal(ours.values[:tokens].long(), theirs.values)
            assert torch.equal(ours.layout.positions[:tokens].long(), theirs.layout.positions)
            assert torch.equal(ours.layout.sentences[:tokens].long(), theirs.layout.sentences)
            assert torch.equal(ours.layout.offsets[: len(chosen) + 1], theirs.layout.offsets)
            assert (ours.layout.sentences[tokens:] == len(chosen)).all()  # dummy tokens are a sentence of their own
            assert ours.layout.offsets[-1] == len(ours.values)


def test_packed_batches_resume_at_any_position():
    loader = loader_of(sides_of(2_000))
    batches = loader.batches(Position())
    first = [next(batches) for _ in range(20)]
    assert first[-1][1].epoch > 0  # past the end of an epoch
    again = loader.batches(first[4][1])
    for batch, position in first[5:]:
        other, other_position = next(again)
        assert torch.equal(batch.row, other.row) and position == other_position


def test_a_corpus_smaller_than_a_batch_makes_one_batch():
    loader = loader_of(sides_of(10))
    assert [len(chosen) for chosen in loader.plan(0)[1]] == [10]


def test_the_shorter_side_gets_a_smaller_budget():
    assert shape_of([9] * 100, [19] * 100, 1280).sizes == (640, 1280)
    assert shape_of([19] * 100, [9] * 100, 1280).sizes == (1280, 640)


@pytest.mark.parametrize("seed", range(5))
def test_no_sentence_of_a_later_batch_fits_into_an_earlier_one(seed):
    random = np.random.default_rng(seed)
    source, target = random.integers(2, 12, 60), random.integers(2, 12, 60)
    shape = pair_shape(source_tokens=40, target_tokens=40, sentences=30, longest=12)
    full, left = fill([source, target], shape, random)
    batches = [*full, left]
    assert sorted(np.concatenate(batches).tolist()) == list(range(60))
    for number, batch in enumerate(batches):
        room = 40 - source[batch].sum(), 40 - target[batch].sum()
        later = np.concatenate([*batches[number + 1 :], []]).astype(int)
        assert not ((source[later] <= room[0]) & (target[later] <= room[1])).any()


def test_a_sentence_longer_than_a_batch_is_refused():
    with pytest.raises(ConfigError, match=r"train\.tokens is 10 but a sentence has 21 tokens"):
        shape_of([20], [3], 10)
    with pytest.raises(DataError, match="every example has a sequence of more than 2 tokens"):
        PackedLoader(lambda epoch: sides_of(5), collate_pairs, added=ADDED, budget=100, max_length=2, seed=1)


def test_batches_hold_sentences_of_similar_length_and_less_than_one_batch_is_left_out():
    sides = sides_of(20_000)
    loader = loader_of(sides, 4096, similar_lengths=True)
    assert len(loader.shapes) > 5
    assert [shape.longest for shape in loader.shapes] == sorted({shape.longest for shape in loader.shapes})
    _, plan, _ = loader.plan(0)
    everyone = np.concatenate(plan)
    assert len(set(everyone.tolist())) == len(everyone) > len(sides) - 4096 / 9
    longer = np.maximum(sides["source"].lengths, sides["target"].lengths) + 1
    batches = [batch for batch, _ in islice(loader.batches(Position()), len(plan))]
    assert {batch.shape for batch in batches} == set(loader.shapes)
    slots = sum(batch.shape.examples * batch.shape.longest[0] for batch in batches)
    # The lengths of the two sides are independent: the longer one decides, so the rectangle of the other is not full.
    assert longer[everyone].sum() > 0.75 * slots
    for batch, chosen in zip(batches, plan, strict=True):
        assert longer[chosen].max() <= batch.shape.longest[0]


def test_a_small_corpus_has_a_single_shape():
    sides = sides_of(200)
    (shape,) = loader_of(sides, 4096, similar_lengths=True).shapes
    assert shape.longest[0] == max(sides["source"].lengths.max(), sides["target"].lengths.max()) + 1


def test_shorter_sentences_fill_the_last_batch_of_longer_ones():
    lengths = np.repeat([4, 9, 19], [505, 201, 111])  # with EOS 5, 10 and 20, so batches of 51, 25 and 12
    stores = [Column(np.full(lengths.sum(), 7, np.int32), np.concatenate([[0], lengths.cumsum()])) for _ in range(2)]
    loader = PackedLoader(
        lambda epoch: pair_columns(*stores),
        collate_pairs,
        added=ADDED,
        budget=256,
        max_length=50,
        seed=1,
        similar_lengths=True,
    )
    assert [shape.longest for shape in loader.shapes] == [(5, 5), (10, 10), (20, 20)]
    _, plan, _ = loader.plan(0)
    batches = [lengths[chosen].tolist() for chosen in plan]
    assert sum(batch == [19] * 12 for batch in batches) == 9  # 108 of 111
    (last,) = [batch for batch in batches if 0 < batch.count(19) < 12]
    assert last.count(19) == 3 and sum(last) + len(last) > 256 - 10
    assert sum(batch.count(9) for batch in batches) == 201
    assert sum(map(len, batches)) > len(lengths) - 51  # less than one batch of the shortest is left out


def test_long_sentences_are_used_with_any_number_of_blocks(monkeypatch):
    monkeypatch.setattr("regard.data.batch_sampler.EXAMPLES_PER_BLOCK", 2_000)
    sides = sides_of(20_000)
    loader = loader_of(sides, 4096, similar_lengths=True)
    plans = [loader.plan(0, block) for block in range(10)]
    assert plans[0][2] == 10
    seen = np.concatenate([batch for _, plan, _ in plans for batch in plan])
    assert len(seen) == len(set(seen.tolist()))
    longer = np.maximum(sides["source"].lengths, sides["target"].lengths)
    for least, most in ((1, 33), (34, 60), (61, 100), (101, 120)):
        of_length = np.flatnonzero((longer >= least) & (longer <= most))
        assert np.isin(of_length, seen).mean() > (0.8 if least == 1 else 0.9999), (least, most)


def test_the_largest_rectangle_has_the_size_of_the_largest_shape():
    shapes = loader_of(sides_of(20_000), 4096, similar_lengths=True).shapes
    batch = largest_rectangle(shapes, lambda length: make_batch([[3] * length], [[3] * length]), times=2)
    slots = batch.target.layout.num_sentences * batch.target.layout.longest
    assert slots == 2 * max(shape.examples * shape.longest[0] for shape in shapes)


def digest(loader, count):
    """A hash of the rows, labels and positions of the first batches."""
    found = hashlib.sha256()
    for batch, at in islice(loader.batches(Position()), count):
        found.update(batch.row.numpy().tobytes())
        found.update(repr((batch.num_tokens, at.epoch, at.block, at.batch)).encode())
    return found.hexdigest()[:16]


def test_rows_of_sequence_pairs_keep_their_bits():
    """Hashes of a version that packed nothing but pairs, so that runs of it resume to the same losses."""
    sides = sides_of(3_000)
    assert digest(loader_of(sides), 30) == "d29e61645368ff86"
    assert digest(loader_of(sides, 2048, similar_lengths=True), 100) == "768589d38f5273b9"
    few = sides_of(300)
    assert digest(loader_of(Aligner.learn(few).add_to(few), 2048), 10) == "1e1251e24271148c"

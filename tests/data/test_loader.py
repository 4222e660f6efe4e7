"""Training batches: their content, their order, and resuming at any position."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batch import ADDED, FERTILITIES, collate_pairs, make_batch
from regard.data.batch_sampler import Loader, Position, dev_batches
from regard.data.columns import Column, pair_columns
from regard.data.ragged import Ragged
from regard.errors import DataError
from regard.text.tokenizer import BOS, EOS

SENTENCES = st.lists(st.integers(3, 99), max_size=8)
PAIRS = st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=20)


def store_of(sentences):
    return Column.from_lists(sentences)


def sides_of(pairs):
    return pair_columns(store_of([source for source, _ in pairs]), store_of([target for _, target in pairs]))


def loader_of(pairs, *, budget=20, max_length=50, seed=1):
    sides = sides_of(pairs)
    return Loader(lambda epoch: sides, collate_pairs, added=ADDED, budget=budget, max_length=max_length, seed=seed)


def lists(ragged):
    return [part.tolist() for part in ragged.split()]


def plain(batch):
    """A batch as lists, to compare."""
    return lists(batch.source), lists(batch.target), batch.labels.values.tolist()


def pairs_of(batch):
    """The sentence pairs that went into a batch."""
    labels = batch.labels.split()
    return [(s[:-1], t.tolist()[:-1]) for s, t in zip(lists(batch.source), labels, strict=True)]


# Columns


def test_a_column_returns_each_sentence():
    store = store_of([[5, 6], [], [7, 8, 9]])
    assert (len(store), store.lengths.tolist()) == (3, [2, 0, 3])
    assert [store[i] for i in range(3)] == [[5, 6], [], [7, 8, 9]]


@pytest.mark.parametrize("index", [-1, 3])
def test_a_column_raises_for_an_index_out_of_range(index):
    with pytest.raises(IndexError, match=f"example {index} of a column of 3"):
        store_of([[5], [6], [7]])[index]


# One batch


def test_the_target_is_the_labels_shifted_right_after_bos():
    batch = make_batch([[5, 6], [7]], [[8, 9, 10], [11]])
    assert lists(batch.source) == [[5, 6, EOS], [7, EOS]]
    assert lists(batch.target) == [[BOS, 8, 9, 10], [BOS, 11]]
    assert batch.labels.values.tolist() == [8, 9, 10, EOS, 11, EOS]
    assert batch.num_tokens == 4 + 2


def test_an_empty_target_has_eos_as_its_only_label():
    batch = make_batch([[5]], [[]])
    assert (lists(batch.target), batch.labels.values.tolist()) == ([[BOS]], [EOS])


@given(PAIRS, st.randoms(use_true_random=False))
def test_collating_rows_of_columns_equals_making_a_batch_of_lists(pairs, random):
    rows = random.choices(range(len(pairs)), k=len(pairs))
    gathered = collate_pairs(sides_of(pairs), np.array(rows))
    made = make_batch([pairs[row][0] for row in rows], [pairs[row][1] for row in rows])
    assert plain(gathered) == plain(made)
    assert gathered.source.values.dtype == gathered.labels.values.dtype == torch.int64


def test_moving_a_cpu_batch_to_the_cpu_does_not_copy_it():
    batch = make_batch([[5]], [[6]])
    assert batch.to(torch.device("cpu")) is batch


def test_a_device_may_be_named_by_a_string():
    batch = make_batch([[5]], [[6]])
    assert batch.to("cpu") is batch
    assert batch.to("meta").labels.values.device.type == "meta"


def test_all_tensors_of_a_batch_move_to_a_device():
    moved = make_batch([[5]], [[6]]).to(torch.device("meta"))
    parts = [moved.source.values, moved.target.values, moved.labels.values, moved.source.layout, moved.target.layout]
    assert {part.device.type for part in parts} == {"meta"}


# An epoch


@given(PAIRS, st.integers(1, 40), st.integers(0, 3))
def test_every_pair_occurs_once_per_epoch_and_no_batch_of_several_exceeds_the_budget(pairs, budget, epoch):
    loader = loader_of(pairs, budget=budget)
    _, plan, _ = loader.plan(epoch)
    batches = [batch for batch, _ in islice(loader.batches(Position(epoch, 0)), len(plan))]
    assert sorted(pair for batch in batches for pair in pairs_of(batch)) == sorted(pairs)
    for batch in batches:
        alone = len(batch.source.layout.lengths) == 1
        assert alone or max(batch.source.layout.total, batch.target.layout.total) <= budget  # EOS is counted


@given(PAIRS, st.integers(0, 30))
def test_batches_resume_at_the_position_after_any_batch(pairs, done):
    loader = loader_of(pairs)
    batches = list(islice(loader.batches(Position()), done + 6))
    position = batches[done][1]
    rest = list(islice(loader_of(pairs).batches(position), 5))
    assert [(plain(batch), after) for batch, after in rest] == [
        (plain(batch), after) for batch, after in batches[done + 1 :]
    ]


def test_the_position_after_the_last_batch_is_the_start_of_the_next_epoch():
    loader = loader_of([([5] * 8, [6] * 8)] * 4, budget=18)  # 9 tokens with EOS: two pairs per batch
    positions = [after for _, after in islice(loader.batches(Position()), 4)]
    assert positions == [Position(0, 0, 1), Position(1), Position(1, 0, 1), Position(2)]


def test_the_order_depends_on_seed_and_epoch():
    pairs = [([token], [token]) for token in range(3, 99)]

    def order(seed, epoch):
        return [rows.tolist() for rows in loader_of(pairs, seed=seed).plan(epoch)[1]]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_each_epoch_uses_its_own_dataset():
    asked = []

    def ids(epoch):
        asked.append(epoch)
        return sides_of([([10 + epoch], [20 + epoch])])

    batches = islice(
        Loader(ids, collate_pairs, added=ADDED, budget=10, max_length=10, seed=1).batches(Position(2, 0)), 3
    )
    assert [pairs_of(batch) for batch, _ in batches] == [[([12], [22])], [([13], [23])], [([14], [24])]]
    assert asked == [2, 3, 4]


def test_pairs_longer_than_the_limit_are_left_out():
    pairs = [([5] * 3, [6]), ([5] * 4, [6]), ([5], [6] * 3), ([5], [6] * 4)]
    _, plan, _ = loader_of(pairs, max_length=3).plan(0)
    assert sorted(row for rows in plan for row in rows) == [0, 2]


def test_a_limit_that_excludes_all_pairs_is_refused():
    with pytest.raises(DataError, match=r"every example has a sequence of more than 2 tokens; raise data\.max_length"):
        next(loader_of([([5] * 3, [6])], max_length=2).batches(Position()))


@given(PAIRS, st.integers(1, 40))
def test_a_dev_set_is_read_completely_and_always_in_the_same_order(pairs, budget):
    batches = dev_batches(sides_of(pairs), collate_pairs, added=ADDED, budget=budget, max_length=50)
    assert sorted(pair for batch in batches for pair in pairs_of(batch)) == sorted(pairs)
    lengths = [length for batch in batches for length in batch.target.layout.lengths]
    assert lengths == sorted(lengths)
    again = dev_batches(sides_of(pairs), collate_pairs, added=ADDED, budget=budget, max_length=50)
    assert [plain(batch) for batch in again] == [plain(batch) for batch in batches]


def test_a_dev_set_leaves_out_pairs_longer_than_the_limit():
    pairs = [([5] * 3, [6]), ([5] * 4, [6]), ([5], [6] * 3), ([5], [6] * 4)]
    batches = dev_batches(sides_of(pairs), collate_pairs, added=ADDED, budget=100, max_length=3)
    assert [pair for batch in batches for pair in pairs_of(batch)] == [pairs[0], pairs[2]]
    assert dev_batches(sides_of(pairs), collate_pairs, added=ADDED, budget=100, max_length=0) == []


@pytest.mark.parametrize("fertile", [False, True])
def test_halves_divide_a_batch_at_a_sentence_near_the_middle(monkeypatch, fertile):
    monkeypatch.setattr("regard.data.batch.WORTH_HALVING", 8)
    sources, targets = [[3, 4], [5], [6, 7, 8, 9]], [[9], [8, 7], [6, 5]]
    batch = make_batch(sources, targets)
    if fertile:
        batch = replace(batch, extras={FERTILITIES: Ragged(torch.arange(10), batch.source.layout)})
    first, second = batch.halves()
    assert plain(first) == plain(make_batch(sources[:2], targets[:2]))
    assert plain(second) == plain(make_batch(sources[2:], targets[2:]))
    assert (first.num_tokens, second.num_tokens) == (5, 3)
    assert torch.equal(torch.cat([first.labels.values, second.labels.values]), batch.labels.values)
    if fertile:
        assert [half.extras[FERTILITIES].values.tolist() for half in (first, second)] == [
            [0, 1, 2, 3, 4],
            [5, 6, 7, 8, 9],
        ]


def test_small_batches_and_single_sentences_are_not_halved(monkeypatch):
    few, single = make_batch([[3], [4]], [[5], [6]]), make_batch([[3] * 600], [[4] * 600])
    assert few.halves() == [few] and single.halves() == [single]
    monkeypatch.setattr("regard.data.batch.WORTH_HALVING", 2)
    uneven = make_batch([[3] * 20, [4]], [[5] * 20, [6]])
    assert [half.num_tokens for half in uneven.halves()] == [21, 2]
    assert [half.num_tokens for half in make_batch([[4], [3] * 20], [[6], [5] * 20]).halves()] == [2, 21]

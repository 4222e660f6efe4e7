"""Batches: every sentence once, none over the budget, similar lengths together."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batch_sampler import bucketed_batches
from regard.data.budget import cut_to_budget

PAIRS_OF_LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=60)
BUDGETS = st.integers(1, 60)


def cut(source, target, budget, order=None):
    order = np.arange(len(source)) if order is None else np.array(order)
    return [batch.tolist() for batch in cut_to_budget(order, (np.array(source), np.array(target)), budget)]


def sides(pairs):
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def bucketed(pairs, budget, seed=0):
    source, target = sides(pairs)
    return bucketed_batches((source, target), budget=budget, random=np.random.default_rng(seed))


def test_a_batch_is_full_when_one_more_sentence_would_go_over_the_budget():
    assert cut([3, 3, 4, 1], [1, 1, 1, 1], budget=10) == [[0, 1, 2], [3]]  # 3 + 3 + 4 = 10 fits, 11 does not


def test_either_side_can_fill_a_batch():
    assert cut([1, 1, 1, 1], [3, 3, 4, 1], budget=10) == [[0, 1, 2], [3]]


def test_a_sentence_longer_than_the_budget_has_its_own_batch():
    assert cut([2, 50, 2, 2], [2, 2, 2, 2], budget=10) == [[0], [1], [2, 3]]
    assert cut([50, 60, 2], [2, 2, 2], budget=10) == [[0], [1], [2]]


def test_batches_follow_the_given_order():
    assert cut([6, 5, 4], [1, 1, 1], budget=10, order=[2, 0, 1]) == [[2, 0], [1]]


def test_no_sentences_make_no_batches():
    assert cut([], [], budget=10, order=np.zeros(0, dtype=np.int64)) == []
    assert bucketed([], 10) == []


@given(PAIRS_OF_LENGTHS, BUDGETS, st.integers(0, 5))
def test_every_sentence_is_in_one_batch_and_no_batch_of_several_exceeds_the_budget(pairs, budget, seed):
    batches = bucketed(pairs, budget, seed)
    assert sorted(index for batch in batches for index in batch) == list(range(len(pairs)))
    source, target = sides(pairs)
    for batch in batches:
        assert len(batch) > 0
        assert len(batch) == 1 or max(source[batch].sum(), target[batch].sum()) <= budget


@given(PAIRS_OF_LENGTHS, BUDGETS)
def test_no_batch_has_room_for_the_next_sentence(pairs, budget):
    source, target = sides(pairs)
    batches = cut_to_budget(np.arange(len(pairs)), (source, target), budget)
    for batch, after in pairwise(batches):
        longer = [*batch, after[0]]
        assert max(source[longer].sum(), target[longer].sum()) > budget


@given(PAIRS_OF_LENGTHS, BUDGETS)
def test_sorted_batches_contain_sentences_sorted_by_length(pairs, budget):
    batches = sorted(bucketed(pairs, budget), key=lambda batch: [pairs[i][::-1] for i in batch])
    lengths = [pairs[index][::-1] for batch in batches for index in batch]  # the target's length first
    assert lengths == sorted(lengths)


def test_the_order_depends_on_the_seed_alone():
    pairs = [(5, 5)] * 100
    first, again, other = (bucketed(pairs, 20, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_short_sentences_do_not_all_come_first():
    batches = bucketed([(length, length) for length in range(1, 101)], 100)
    firsts = [int(batch[0]) for batch in batches]
    assert len(firsts) > 40
    assert firsts != sorted(firsts)

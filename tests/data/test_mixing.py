"""How examples are drawn from several corpora: shares are exact, and any part of any epoch can be computed first."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batch import ADDED, collate_pairs
from regard.data.batch_sampler import Loader, Position
from regard.data.columns import Column, pair_columns
from regard.data.mixing import DrawnPairs, JoinedPairs, Mixture, examples_drawn

WEIGHTS = st.sampled_from([None, 0.05, 0.3, 0.5, 1, 1.5, 2, 3.7])
CORPORA = st.lists(st.tuples(st.integers(1, 40), WEIGHTS), min_size=1).filter(lambda one: any(w for _, w in one))


def numbered(*counts):
    """Return corpora as columns in which every source is its number among all examples, so often as it says."""
    numbers = np.arange(sum(counts))
    parts = np.split(numbers, np.cumsum(counts)[:-1])
    return [
        pair_columns(
            Column.from_lists([[number] * (1 + number % 3) for number in part]),
            Column.from_lists([[number] * (1 + number % 5) for number in part]),
        )
        for part in parts
    ]


def joined(parts):
    return pair_columns(*(Column.join([part[side] for part in parts]) for side in ("source", "target")))


@pytest.mark.parametrize(
    ("counts", "weights", "drawn"),
    [
        ([100, 300], [1, 1], (100, 300)),
        ([100, 300], [5, 5], (100, 300)),  # only ratios matter
        ([100, 100], [3, 1], (150, 50)),
        ([100, 100], [2, 1], (133, 67)),  # 133 1/3 and 66 2/3
        ([10, 90], [9, 1], (50, 50)),
        ([100, 300], [None, 7], (0, 300)),
        ([40, 40, 40], [2, 0.25, 0.5], (87, 11, 22)),  # 80, 10 and 20 of 110, times 120
        ([29_000, 29_000], [0.1, 0.2], (19_333, 38_667)),  # 0.1 is a tenth, not the nearest binary number
        ([10**6, 1], [1e-6, 1e-6], (10**6, 1)),
        ([3, 10**6], [1e-6, 1e6], (1, 1_000_003)),  # at least one
    ],
)
def test_an_epoch_is_shared_out_by_weight_times_number_of_examples(counts, weights, drawn):
    assert examples_drawn(counts, weights) == drawn
    assert np.histogram(Mixture(counts, weights, seed=1).rows(0), bins=np.cumsum([0, *counts]) - 0.5)[
        0
    ].tolist() == list(drawn)


@given(CORPORA, st.integers(1, 7), st.integers(0, 3))
@pytest.mark.slow
def test_examples_of_a_corpus_are_drawn_equally_often_to_within_one(corpora, epochs, seed):
    counts, weights = [count for count, _ in corpora], [weight for _, weight in corpora]
    mixture = Mixture(counts, weights, seed=seed)
    drawn = Counter(np.concatenate([mixture.rows(epoch) for epoch in range(epochs)]).tolist())
    begin = 0
    for count, each in zip(counts, examples_drawn(counts, weights), strict=True):
        times = [drawn[row] for row in range(begin, begin + count)]
        assert sum(times) == epochs * each
        assert max(times) - min(times) <= 1
        begin += count


@given(CORPORA)
def test_shares_follow_the_weights_to_within_half_an_example(corpora):
    counts, weights = [count for count, _ in corpora], [weight for _, weight in corpora]
    products = [0 if weight is None else weight * count for count, weight in corpora]
    total = sum(count for count, weight in corpora if weight is not None)
    for product, drawn in zip(products, examples_drawn(counts, weights), strict=True):
        exact = product / sum(products) * total
        assert abs(drawn - exact) <= 0.5 + 1e-9 or (drawn == 1 and exact < 1)


@given(CORPORA, st.integers(0, 10**6), st.integers(0, 3), st.randoms(use_true_random=False))
def test_any_part_of_an_epoch_can_be_computed_first(corpora, epoch, seed, random):
    mixture = Mixture([count for count, _ in corpora], [weight for _, weight in corpora], seed=seed)
    places = np.array(random.sample(range(len(mixture)), min(len(mixture), 9)), dtype=np.int64)
    assert mixture.rows(epoch, places).tolist() == mixture.rows(epoch)[places].tolist()


def test_epochs_of_half_a_corpus_have_every_example_in_turn_and_another_seed_another_half():
    def first_half(seed, epoch):
        rows = Mixture([100, 100], [1, 3], seed=seed).rows(epoch)
        return set(rows[rows < 100].tolist())

    first, second = first_half(1, 0), first_half(1, 1)
    assert len(first) == 50 and first.isdisjoint(second) and len(first | second) == 100
    assert first != first_half(2, 0)


def test_without_weights_each_epoch_has_the_examples_as_they_are():
    dataset = joined(numbered(3, 4))
    assert Mixture([3, 4], [1, 1], seed=1).epoch(dataset, 5) is dataset


@pytest.mark.parametrize("weights", [(1, 1, 1), (2, 0.5, 1), (None, 1.3, 1), (0.3, None, 2.5)])
def test_pairs_on_disk_are_drawn_like_those_in_memory(weights):
    parts = numbered(30, 50, 7)
    mixture = Mixture([30, 50, 7], weights, seed=4)
    memory, lazy = mixture.epoch(joined(parts), 3), DrawnPairs(JoinedPairs(parts), mixture, 3)
    assert len(lazy) == len(memory)
    rows = np.random.default_rng(1).permutation(len(lazy))
    for one, other in zip(memory.lengths_of(rows), lazy.lengths_of(rows), strict=True):
        assert one.tolist() == other.tolist()
    batches = [rows[:5], rows[5:6], rows[6:30]]
    columns, places = lazy.read(batches)
    for batch, place in zip(batches, places, strict=True):
        for side in ("source", "target"):
            assert memory[side].gather(batch).tolist() == columns[side].gather(place).tolist()


def test_the_totals_of_drawn_pairs_are_in_proportion_to_the_weights():
    parts = numbered(30, 60)
    joined_pairs = JoinedPairs(parts)
    every, drawn = joined_pairs.upto(2), DrawnPairs(joined_pairs, Mixture([30, 60], [2, None], seed=1), 0).upto(2)
    first = parts[0].upto(2)
    assert drawn.examples == first.examples and drawn.tokens == first.tokens
    mostly = DrawnPairs(joined_pairs, Mixture([30, 60], [4, 1], seed=1), 0).upto(2)  # 60 and 30 of 90
    assert mostly.examples == 2 * first.examples + parts[1].upto(2).examples // 2
    assert every.examples == first.examples + parts[1].upto(2).examples


@pytest.mark.parametrize("position", [Position(0, 0, 3), Position(2, 0, 0), Position(5, 0, 1)])
def test_a_loader_of_a_mixture_resumes_anywhere(position):
    parts = numbered(40, 60)
    mixture = Mixture([40, 60], [0.7, 1.6], seed=1)

    def loader():
        datasets = {epoch: mixture.epoch(joined(parts), epoch) for epoch in range(9)}
        return Loader(datasets.__getitem__, collate_pairs, added=ADDED, budget=40, max_length=9, seed=1)

    uninterrupted = loader().batches(Position())
    for _, after in uninterrupted:
        if after == position:
            break
    resumed = loader().batches(position)
    for _ in range(20):
        (one, here), (other, there) = next(uninterrupted), next(resumed)
        assert here == there and one.as_lists() == other.as_lists()


def test_columns_are_put_behind_others():
    first, second = Column.from_lists([[1], [], [2, 3]]), Column.from_lists([[4, 5], [6], []])
    assert [second.after(first)[row] for row in range(3)] == [[1, 4, 5], [6], [2, 3]]

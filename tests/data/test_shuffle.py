"""A computed permutation: complete, different for every seed, and uniform."""

import numpy as np
import pytest

from regard.data.shuffle import Shuffle


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 16, 17, 1000, 65_536, 65_537])
def test_every_element_occurs_once(count):
    order = Shuffle(count, (1, 2))[:]
    assert sorted(order.tolist()) == list(range(count))


def test_a_slice_equals_the_slice_of_the_complete_permutation():
    shuffle = Shuffle(10_001, (3, 4))
    assert np.array_equal(shuffle[4_000:4_100], shuffle[:][4_000:4_100])


def test_a_slice_of_a_large_permutation_is_computed_alone():
    shuffle = Shuffle(10_000_000, (1, 0))
    part = shuffle[9_999_000:10_000_000]
    assert len(set(part.tolist())) == 1_000 and part.max() < 10_000_000
    assert np.array_equal(part, Shuffle(10_000_000, (1, 0))[9_999_000:10_000_000])


def test_the_permutation_depends_on_every_part_of_the_seed():
    orders = [tuple(Shuffle(1_000, seed)[:].tolist()) for seed in ((1, 0), (1, 1), (2, 0))]
    assert len(set(orders)) == 3


def test_the_permutation_looks_random():
    """Each tenth of the permutation holds about a tenth of each tenth of the elements, and neighbours are unrelated."""
    count = 100_000
    order = Shuffle(count, (5, 6))[:]
    table = np.histogram2d(np.arange(count), order, bins=10)[0]
    chi_square = ((table - count / 100) ** 2 / (count / 100)).sum()
    assert chi_square < 81 + 5 * (2 * 81) ** 0.5  # 81 degrees of freedom, five standard deviations
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 5 / count**0.5
    fixed = (order == np.arange(count)).sum()
    assert fixed < 10  # about one is expected

"""Splitting: no text is in two parts, and the parts have the promised sizes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.adapting.general import sample
from regard.adapting.splitting import MIN_PAIRS, related_groups, split_pairs, text_key, without_duplicates
from regard.errors import DataError
from regard.text.pair import Pair


def distinct(count):
    return [Pair(f"source {number}", f"target {number}") for number in range(count)]


@pytest.mark.parametrize(
    ("total", "test", "dev"), [(50, 20, 10), (100, 20, 10), (500, 50, 50), (3000, 300, 300), (9000, 500, 500)]
)
def test_parts_have_a_tenth_of_the_pairs_within_bounds(total, test, dev):
    split = split_pairs(distinct(total), seed=1)
    assert (len(split.test), len(split.dev), len(split.train)) == (test, dev, total - test - dev)


def test_general_text_has_larger_parts():
    split = split_pairs(distinct(20_000), seed=1, most=1000)
    assert (len(split.test), len(split.dev), len(split.train)) == (1000, 1000, 18_000)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=120, max_size=200), st.integers(0, 5))
def test_no_source_and_no_target_is_in_two_parts(numbers, seed):
    pairs = [Pair(f"Source  {one}", f"target {other}") for one, other in numbers] + distinct(100)[61:]
    try:
        split = split_pairs(pairs, seed=seed)
    except DataError:  # nearly all pairs are related
        return
    for side in (0, 1):
        keys = [{text_key(pair[side]) for pair in part} for part in (split.train, split.dev, split.test)]
        assert not keys[0] & keys[1] and not keys[0] & keys[2] and not keys[1] & keys[2]
    kept = len(split.train) + len(split.dev) + len(split.test)
    assert kept + split.duplicates == len(pairs)


def test_a_duplicate_is_the_same_apart_from_case_and_spaces_and_the_first_one_is_kept():
    pairs = [Pair("a b", "c"), Pair("A  B", "C "), Pair("a b", "d")]
    assert without_duplicates(pairs) == [Pair("a b", "c"), Pair("a b", "d")]


def test_pairs_are_related_by_source_or_by_target():
    pairs = [Pair("a", "1"), Pair("b", "2"), Pair("A", "3"), Pair("c", "3"), Pair("d", "4")]
    groups = sorted(sorted(pair.source for pair in group) for group in related_groups(pairs))
    assert groups == [["A", "a", "c"], ["b"], ["d"]]


def test_with_a_test_set_of_its_own_pairs_that_share_a_text_with_it_are_left_out():
    given = [Pair("source 1", "other"), Pair("new", "target 2"), Pair("newer", "newest")]
    split = split_pairs(distinct(100), seed=1, test=given)
    assert split.test == given and split.leaks == 2
    assert len(split.train) + len(split.dev) == 98
    assert not {"source 1", "source 2"} & {pair.source for pair in [*split.train, *split.dev]}


def test_the_split_follows_from_the_seed():
    assert split_pairs(distinct(100), seed=1) == split_pairs(distinct(100), seed=1)
    assert split_pairs(distinct(100), seed=1).test != split_pairs(distinct(100), seed=2).test


def test_too_few_pairs_are_refused_with_the_minimum():
    pairs = distinct(MIN_PAIRS - 1)
    with pytest.raises(DataError, match=r"my.tsv has 49 pairs; adapting needs at least 50"):
        split_pairs(pairs, seed=1, origin="my.tsv")
    with pytest.raises(DataError, match=r"has 49 pairs without duplicates .* \(98 with them\); .* at least 50"):
        split_pairs(pairs * 2, seed=1)


def test_pairs_that_all_share_a_text_are_refused():
    with pytest.raises(DataError, match="share their source or their target"):
        split_pairs([Pair(f"source {number}", "the same") for number in range(100)], seed=1)


def test_a_sample_has_each_pair_about_equally_often():
    pairs = distinct(20)
    counts = dict.fromkeys(pairs, 0)
    for seed in range(2000):
        for pair in sample(iter(pairs), 5, seed=seed):
            counts[pair] += 1
    assert sum(counts.values()) == 10_000
    assert all(400 < count < 600 for count in counts.values())  # 500 expected, standard deviation below 20
    assert sample(pairs, 30, seed=1) == pairs
    random.seed(1)
    before = random.getstate()
    sample(pairs, 5, seed=1)
    assert random.getstate() == before

"""Tests of significance in a study: textbook values, and what is called better or worse."""

import math

import numpy as np
import pytest

from regard.metrics.corpus_metrics import mean_metric
from regard.metrics.distributions import f_probability, incomplete_beta, t_bound, t_probability
from regard.metrics.significance import ALPHA, Sampling, randomization_p, randomization_p_of_means
from regard.study.result.significance import holm, seed_tests, sentence_p, stable_rows, verdict

METRIC = mean_metric("score", "mean", lambda outputs: [float(text) for text in outputs], decimals=2)


# Distributions


@pytest.mark.parametrize(
    ("freedom", "probability", "bound"),
    [(1, 0.05, 12.706), (2, 0.05, 4.303), (4, 0.05, 2.776), (10, 0.01, 3.169), (30, 0.05, 2.042), (120, 0.001, 3.373)],
)
def test_students_t_has_the_bounds_of_printed_tables(freedom, probability, bound):
    assert t_bound(probability, freedom) == pytest.approx(bound, abs=5e-4)
    assert t_probability(-t_bound(probability, freedom), freedom) == pytest.approx(probability)


def test_students_t_with_one_degree_is_cauchys_and_with_many_the_normal_distribution():
    assert t_probability(1.0, 1) == pytest.approx(0.5)
    assert t_probability(1.959964, 1e9) == pytest.approx(0.05, abs=1e-6)
    assert t_probability(0.0, 3) == pytest.approx(1.0)


@pytest.mark.parametrize(("f", "above", "below"), [(161.448, 1, 1), (19.0, 2, 2), (4.256, 2, 9), (2.348, 10, 20)])
def test_f_has_the_five_percent_points_of_printed_tables(f, above, below):
    assert f_probability(f, above, below) == pytest.approx(0.05, abs=5e-5)


def test_the_incomplete_beta_function_is_a_sum_of_binomial_probabilities():
    # I_x(a, n - a + 1) is the probability of at least a successes in n.
    at_least_two = sum(math.comb(5, k) * 0.3**k * 0.7 ** (5 - k) for k in range(2, 6))
    assert incomplete_beta(0.3, 2, 4) == pytest.approx(at_least_two, rel=1e-12)
    assert incomplete_beta(0.0, 2, 4) == 0.0
    assert incomplete_beta(1.0, 2, 4) == 1.0


# Over seeds


def test_two_rows_are_compared_by_the_paired_t_test():
    base, other = {1: 10.0, 2: 12.0, 3: 11.0}, {1: 11.0, 2: 15.0, 3: 13.0}
    found = seed_tests({"base": base, "other": other}, "base")["other"]
    # Differences 1, 3, 2: mean 2, deviation 1, so t = 2 / (1 / sqrt(3)) with 2 degrees of freedom.
    assert found.change == pytest.approx(2.0)
    assert found.freedom == 2
    assert found.p == pytest.approx(t_probability(2 * 3**0.5, 2))
    assert found.high - found.change == pytest.approx(4.303 / 3**0.5, abs=1e-3)
    assert not found.pooled


def test_many_rows_share_the_estimate_of_the_noise():
    generator = np.random.default_rng(1)
    scores = {f"row {n}": {s: 30 + n + generator.normal() for s in (1, 2, 3)} for n in range(10)}
    found = seed_tests(scores, "row 0")
    assert {one.freedom for one in found.values()} == {(10 - 1) * (3 - 1)}
    assert all(one.pooled for one in found.values())
    assert found["row 9"].p < 1e-6 < found["row 1"].p


def test_a_difference_between_seeds_that_all_rows_share_is_no_noise():
    scores = {"base": {1: 1.0, 2: 5.0}, "a": {1: 2.1, 2: 6.0}, "b": {1: 1.0, 2: 5.1}}
    moved = {row: {seed: score + 100 * seed for seed, score in own.items()} for row, own in scores.items()}
    for row, one in seed_tests(scores, "base").items():
        assert seed_tests(moved, "base")[row].p == pytest.approx(one.p)


def test_an_unstable_row_is_tested_alone_and_does_not_spoil_the_others():
    generator = np.random.default_rng(2)
    scores = {f"row {n}": {s: 30 + (n == 1) + generator.normal() / 10 for s in (1, 2, 3)} for n in range(6)}
    scores["row 5"] = {1: 30.0, 2: 12.0, 3: 47.0}
    assert stable_rows(scores) == [f"row {n}" for n in range(5)]
    found = seed_tests(scores, "row 0")
    assert not found["row 5"].pooled and found["row 5"].freedom == 2 and found["row 5"].p > 0.5
    assert found["row 1"].pooled and found["row 1"].p < 0.001


def test_only_seeds_that_the_baseline_has_too_are_compared():
    scores = {"base": {1: 1.0, 2: 2.0, 3: 3.5}, "a": {1: 2.0, 2: 3.5, 4: 90.0}, "b": {3: 9.0}}
    found = seed_tests(scores, "base")
    assert found["a"].change == pytest.approx((1.0 + 1.5) / 2)
    assert "b" not in found
    assert seed_tests({"a": {1: 1.0, 2: 2.0}}, "base") == {}


def test_scores_without_any_noise_are_not_tested():
    scores = {"base": {1: 95.0, 2: 95.0}, "a": {1: 95.0, 2: 95.0}, "b": {1: 96.0, 2: 96.0}}
    assert seed_tests(scores, "base") == {}


def test_rows_without_some_of_the_seeds_are_fitted_too():
    """Of 7 scores, 3 rows and 3 seeds take 5 degrees of freedom: one of them is the mean of all."""
    scores = {"base": {1: 1.1, 2: 2.3, 3: 3.9}, "a": {1: 2.1, 2: 3.3}, "b": {2: 5.3, 3: 6.9}}
    assert seed_tests(scores, "base") == {}, "every score is that of its row and its seed"
    scores["a"][2], scores["b"][3] = 3.4, 7.0
    assert {one.freedom for one in seed_tests(scores, "base").values()} == {2}


# Over sentences


def test_one_seed_is_tested_as_compare_does():
    generator = np.random.default_rng(3)
    one, other = (np.stack([generator.normal(size=50), np.ones(50)], axis=1) for _ in range(2))
    sampling = Sampling(trials=500)
    assert sentence_p(METRIC, {7: one}, {7: other}, sampling) == randomization_p(METRIC, one, other, sampling)
    assert sentence_p(METRIC, {7: one}, {8: other}, sampling) is None


def test_sentences_of_all_seeds_are_exchanged_together():
    # One sentence that differs alike for both seeds: every exchange gives the same size. If seeds were exchanged apart, half
    # of them would give 0. Two such sentences: half of the exchanges give the same size.
    one, sampling = np.array([[1.0, 1.0], [1.0, 1.0]]), Sampling(trials=999)
    first, both = one * [[0, 1], [1, 1]], one * [0, 1]
    assert randomization_p_of_means(METRIC, [one, one], [first, first], sampling) == 1.0
    assert randomization_p_of_means(METRIC, [one, one], [both, both], sampling) == pytest.approx(0.5, abs=0.05)
    assert randomization_p_of_means(METRIC, [one, one], [one, one], sampling) == 1.0


# Together


def test_holm_multiplies_the_smallest_by_all_the_next_by_one_less_and_never_decreases():
    found = holm({"a": 0.04, "b": 0.01, "c": 0.03, "d": 0.5})
    assert found == pytest.approx({"b": 0.04, "c": 0.09, "a": 0.09, "d": 0.5})
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ((0.01, 0.01), "better"),
        ((0.01, 0.2), "unclear"),
        ((0.2, 0.01), "unclear"),
        ((0.2, 0.2), "same"),
        ((0.01, None), "better"),
        ((None, 0.01), "unclear"),
        ((None, None), "untested"),
    ],
)
def test_a_difference_counts_if_both_tests_find_it(tests, expected):
    assert verdict(1.0, tests, higher_is_better=True) == expected
    if expected == "better":
        assert verdict(1.0, tests, higher_is_better=False) == "worse"


@pytest.mark.slow
def test_the_test_over_seeds_alone_keeps_its_rate():
    generator = np.random.default_rng(5)
    repetitions = 300
    wrong = 0
    for _ in range(repetitions):
        scores = {f"{row}": {seed: float(generator.normal()) for seed in (1, 2, 3)} for row in range(5)}
        tests = seed_tests(scores, "0")
        wrong += min(holm({row: one.p for row, one in tests.items()}).values()) < ALPHA
    # The comparisons share a baseline, so Holm is cautious; the test of stability costs little.
    assert 0.01 * repetitions < wrong <= repetitions * (ALPHA + 2.33 * (ALPHA * (1 - ALPHA) / repetitions) ** 0.5)

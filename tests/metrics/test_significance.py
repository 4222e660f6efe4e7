"""Intervals and paired tests: small cases that a reader can redo, and agreement with sacreBLEU to the digit."""

import random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from regard.config import EvaluateConfig
from regard.errors import ConfigError
from regard.metrics import corpus_metrics, significance
from regard.metrics.corpus_metrics import bleu_metric, chrf_metric, mean_metric, ter_metric
from regard.metrics.significance import (
    Interval,
    Sampling,
    bootstrap_p,
    bootstrap_scores,
    interval,
    paired_result,
    randomization_p,
)

CONFIG = EvaluateConfig()
NAMES = {"BLEU": "BLEU", "chrF": "chrF2", "TER": "TER"}  # ours and sacreBLEU's
WORDS = [
    "the",
    "a",
    "small",
    "old",
    "dog",
    "cat",
    "house",
    "street",
    "sees",
    "runs",
    "and",
    "in",
    "under",
    "red",
    ",",
    ".",
]
MEAN = mean_metric(
    "mean", "", lambda outputs: [float(one) for one in outputs], decimals=2
)  # of outputs that are numbers


def changed(texts, share, generator):
    """Replace a share of the words."""
    return [
        " ".join(generator.choice(WORDS) if generator.random() < share else word for word in text.split())
        for text in texts
    ]


def outputs_and_references(num_references, size=40):
    generator = random.Random(7)
    first = [" ".join(generator.choices(WORDS, k=generator.randint(3, 9))) for _ in range(size)]
    references = [first, *(changed(first, 0.2, generator) for _ in range(num_references - 1))]
    systems = {"a": changed(first, 0.4, generator), "b": changed(first, 0.3, generator)}
    systems["c"] = changed(systems["a"], 0.1, generator)
    return systems, references


def metrics_of(references):
    return [bleu_metric(references, CONFIG), chrf_metric(references, CONFIG), ter_metric(references)]


# Cases that a reader can redo


def test_two_systems_that_differ_in_one_sentence_do_so_in_every_exchange():
    one, other = MEAN.statistics(["1", "1", "1"]), MEAN.statistics(["1", "1", "4"])
    # An exchange of the third sentence reverses the difference of 1, and others change nothing: none is larger.
    assert randomization_p(MEAN, one, other, Sampling(trials=99)) == 1 / 100


def test_exchanges_of_two_opposite_differences_are_larger_half_of_the_time():
    one, other = MEAN.statistics(["0", "3"]), MEAN.statistics(["2", "0"])
    # The sentences differ by 2 and -3, so the means by |2 - 3| / 2 or |2 + 3| / 2, each in half of the exchanges.
    assert randomization_p(MEAN, one, other, Sampling(trials=9_999)) == pytest.approx(0.5, abs=0.02)


def test_equal_outputs_have_a_p_of_one_by_both_tests():
    same = MEAN.statistics(["1", "2", "5"])
    sampling = Sampling(resamples=50, trials=50)
    resampled = bootstrap_scores(MEAN, same, sampling)
    found = paired_result(MEAN, same, same, (resampled, resampled), sampling)
    assert (found.change, found.low, found.high) == (0, 0, 0)
    assert (found.p_bootstrap, found.p_randomization) == (1, 1)


def test_bootstrap_counts_the_draws_that_exceed_their_mean_by_more_than_the_difference():
    baseline, system = np.zeros(4), np.array([1.0, 1.0, 1.0, 5.0])
    # Their mean is 2, so the draws are -1, -1, -1 and 3: one of four is larger than 2.5, and none larger than 3.5.
    assert bootstrap_p(2.5, baseline, system) == 2 / 5
    assert bootstrap_p(-2.5, baseline, system) == 2 / 5
    assert bootstrap_p(3.5, baseline, system) == 1 / 5


def test_an_interval_leaves_out_a_fortieth_on_each_side():
    # Of 80 scores two are left out on each side: 3 to 78 remain.
    assert interval(np.arange(1.0, 81.0)) == Interval(mean=40.5, ci=(78 - 3) / 2)


def test_the_interval_of_a_difference_is_that_of_resampled_pairs():
    one, other = MEAN.statistics(["1", "20", "300"]), MEAN.statistics(["2", "21", "301"])
    sampling = Sampling(resamples=100, trials=10)
    resampled = [bootstrap_scores(MEAN, each, sampling) for each in (one, other)]
    found = paired_result(MEAN, one, other, tuple(resampled), sampling)
    # Scores vary with the sentences that are drawn, but their difference is always 1.
    assert resampled[0].std() > 10
    assert (found.change, found.low, found.high) == pytest.approx((1, 1, 1), abs=1e-4)


def test_draws_follow_from_the_seed():
    systems, references = outputs_and_references(1, size=10)
    metric = chrf_metric(references, CONFIG)
    one, other = metric.statistics(systems["a"]), metric.statistics(systems["b"])

    def found(seed):
        sampling = Sampling(seed=seed, resamples=100, trials=100)
        return (*bootstrap_scores(metric, one, sampling), randomization_p(metric, one, other, sampling))

    assert found(1) == found(1)
    assert found(1) != found(2)


@pytest.mark.parametrize(("name", "value"), [("seed", -1), ("resamples", 39), ("trials", 0), ("trials", 10**7)])
def test_impossible_numbers_are_refused(name, value):
    with pytest.raises(ConfigError, match=f"{name} is .*; it must be from"):
        Sampling(**{name: value}).check()


def test_a_part_of_a_corpus_has_the_score_that_it_has_alone():
    systems, references = outputs_and_references(2, size=12)
    for whole, part in zip(metrics_of(references), metrics_of([one[3:8] for one in references]), strict=True):
        alone = part.score(part.statistics(systems["a"][3:8]))
        assert whole.score(whole.statistics(systems["a"])[3:8]) == alone
        single = metrics_of([one[3:4] for one in references])[["BLEU", "chrF", "TER"].index(whole.name)]
        assert whole.sentence_scores(whole.statistics(systems["a"]))[3] == single.score(
            single.statistics(systems["a"][3:4])
        )


@pytest.mark.parametrize("size", [1, 40])  # in a single sentence, n-grams of some orders have no match
def test_scores_of_many_sums_are_those_of_each(size):
    systems, references = outputs_and_references(2)
    for metric in metrics_of(references):
        rows = metric.statistics(systems["a"]).astype(np.float64)
        sums = np.stack([rows[first : first + size].sum(axis=0) for first in range(len(rows))])
        expected = [metric.score_of_sums(row) for row in sums.tolist()]
        assert metric.scores_of_sums(sums.reshape(4, 10, -1)).ravel().tolist() == pytest.approx(expected, rel=1e-14)


def test_blocks_change_nothing(monkeypatch):
    systems, references = outputs_and_references(2, size=11)
    sampling = Sampling(resamples=40, trials=200)

    def found():
        metric = chrf_metric(references, CONFIG)
        one, other = metric.statistics(systems["a"]), metric.statistics(systems["b"])
        return one.tolist(), randomization_p(metric, one, other, sampling)

    at_once = found()
    monkeypatch.setattr(corpus_metrics, "SENTENCES", 3)
    monkeypatch.setattr(significance, "BLOCK", 11 * 64)
    assert found() == at_once


# Agreement with sacreBLEU


def of_sacrebleu(systems, references, sampling, monkeypatch):
    """The results of its two paired tests."""
    monkeypatch.setenv("SACREBLEU_SEED", str(sampling.seed))
    metrics = {
        "BLEU": BLEU(references=references),
        "chrF": CHRF(references=references),
        "TER": TER(references=references),
    }
    sizes = {"bs": sampling.resamples, "ar": sampling.trials}
    return {
        kind: PairedTest(list(systems.items()), metrics, None, test_type=kind, n_samples=size)()
        for kind, size in sizes.items()
    }


@pytest.mark.slow(unless=["3-7"])
@pytest.mark.parametrize("seed", [12345, 7])
@pytest.mark.parametrize("num_references", [1, 2, 3])
def test_everything_is_that_of_sacrebleu_to_the_digit(num_references, seed, monkeypatch):
    systems, references = outputs_and_references(num_references)
    sampling = Sampling(seed=seed, resamples=200, trials=700)
    theirs = of_sacrebleu(systems, references, sampling, monkeypatch)
    (bs_signatures, bs), (ar_signatures, ar) = theirs["bs"], theirs["ar"]
    for metric in metrics_of(references):
        name = NAMES[metric.name]
        counted = [metric.statistics(one) for one in systems.values()]
        resampled = [bootstrap_scores(metric, one, sampling) for one in counted]
        for number, one in enumerate(counted):
            assert metric.score(one) == bs[name][number].score == ar[name][number].score
            assert interval(resampled[number]) == Interval(bs[name][number].mean, bs[name][number].ci)
            if number:
                found = paired_result(metric, counted[0], one, (resampled[0], resampled[number]), sampling)
                assert found.p_bootstrap == bs[name][number].p_value
                assert found.p_randomization == ar[name][number].p_value
        assert metric.signature(bs=sampling.resamples, seed=seed) == str(bs_signatures[name])
        assert metric.signature(ar=sampling.trials, seed=seed) == str(ar_signatures[name])

"""Learning rates, compared with values computed by hand."""

import pytest

from regard.config import TrainConfig
from regard.errors import ConfigError
from regard.training.schedules import cosine, inverse_sqrt, learning_rate, noam, warmup_stable_decay


def test_noam_rises_linearly_during_warmup_and_then_falls_with_the_square_root():
    rate = lambda step: noam(step, width=512, warmup=4000)  # noqa: E731
    assert rate(4000) == pytest.approx(512**-0.5 * 4000**-0.5)
    assert rate(1000) == pytest.approx(rate(4000) / 4)
    assert rate(16000) == pytest.approx(rate(4000) / 2)


def test_inverse_sqrt_rises_to_the_peak_and_falls_with_the_square_root():
    assert [inverse_sqrt(step, peak=1.0, warmup=4) for step in (1, 4, 16)] == [0.25, 1.0, 0.5]


def test_cosine_is_half_the_peak_in_the_middle():
    assert cosine(2, peak=1.0, warmup=4, steps=103) == 0.5
    assert cosine(4, peak=1.0, warmup=4, steps=103) == 1.0
    assert cosine(54, peak=1.0, warmup=4, steps=103) == pytest.approx(0.5)
    assert 0 < cosine(103, peak=1.0, warmup=4, steps=103) < 0.001


def test_warmup_stable_decay_rises_stays_and_falls_linearly():
    rates = [warmup_stable_decay(step, peak=1.0, warmup=2, steps=10, decay=0.4) for step in range(1, 11)]
    assert rates == [0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25]


def test_a_schedule_that_needs_a_peak_is_refused_without_one():
    with pytest.raises(ConfigError, match=r"set train.lr"):
        learning_rate(TrainConfig(schedule="cosine"), width=512)
    assert learning_rate(TrainConfig(lr=2.0), width=512)(4000) == pytest.approx(2 * 512**-0.5 * 4000**-0.5)

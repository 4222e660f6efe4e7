"""Averages of weights."""

import pytest
import torch

from regard.training.saver import mean_weights
from regard.training.training_state import MovingAverage


def test_mean_weights_average_checkpoints():
    mean = mean_weights([{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 6.0])}])
    assert mean["w"].tolist() == [2.0, 4.0]


def test_the_moving_average_uses_a_smaller_decay_at_first():
    average = MovingAverage({"w": torch.zeros(1)}, decay=0.75)
    average.update({"w": torch.ones(1)}, step=1)  # at first the decay is (1 + step) / (10 + step)
    assert average.average["w"].item() == pytest.approx(1 - 2 / 11)
    before = average.average["w"].item()
    average.update({"w": torch.zeros(1)}, step=1000)
    assert average.average["w"].item() == pytest.approx(0.75 * before)

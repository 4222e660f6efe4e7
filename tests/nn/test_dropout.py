"""Dropout's randomness is handed in, and its means are exact."""

import pytest
import torch

from regard.errors import ConfigError
from regard.nn.dropout import Dropout, Noise


def test_a_quarter_is_dropped_and_the_rest_scaled_by_four_thirds():
    dropout = Dropout(0.25, Noise())
    out = dropout(torch.ones(1000, 1000))
    kept = out[out != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 4 / 3))
    assert kept.numel() / out.numel() == pytest.approx(0.75, abs=0.002)  # four standard deviations of a million draws


def test_noise_is_a_function_of_seed_and_step():
    def masks(seed, step):
        noise = Noise()
        noise.seed(seed, step)
        return [noise.mask(torch.Size((7, 5)), 64) for _ in range(2)]

    first, again = masks(1, 2), masks(1, 2)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], masks(1, 3)[0])
    assert not torch.equal(first[0], masks(2, 2)[0])


def test_adding_a_branch_equals_dropping_then_adding(generator):
    x, branch = torch.randn(2, 6, 4, generator=generator)
    noise = Noise()
    dropout = Dropout(0.5, noise)
    noise.seed(0, 0)
    together = dropout.add(x, branch)
    noise.seed(0, 0)
    torch.testing.assert_close(together, x + dropout(branch))


def test_nothing_is_dropped_outside_training_and_nothing_touches_the_global_generator():
    x = torch.ones(100)
    before = torch.get_rng_state()
    dropout = Dropout(0.9, Noise())
    dropout(x)
    assert torch.equal(torch.get_rng_state(), before)
    assert dropout.eval()(x) is x


def test_a_rate_of_one_is_refused():
    with pytest.raises(ConfigError, match="below 1"):
        Dropout(1.0, Noise())

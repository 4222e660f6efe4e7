"""Dropout gets its randomness from a Noise, and keeps the mean exactly."""

import pytest
import torch

from regard.errors import ConfigError
from regard.nn.dropout import Dropout, Noise, hashed


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


def test_numbers_computed_on_a_device_are_those_of_splitmix64():
    def reference(seed, site, place):
        z = (place * 0x9E3779B97F4A7C15 + seed * 2**32 + site * 2**16) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53

    drawn = hashed(1000, torch.tensor([2**31 - 2], dtype=torch.int32), 7)
    assert drawn.tolist() == [reference(2**31 - 2, 7, place) for place in range(1000)]


def test_numbers_computed_on_a_device_are_uniform_and_differ_by_seed_and_site():
    drawn = torch.stack([hashed(50_000, torch.tensor([seed]), site) for seed in (1, 2) for site in (1, 2)])
    counts = torch.histc(drawn.float(), bins=20, min=0, max=1)
    assert (counts - 10_000).abs().max() < 500  # five standard deviations
    assert (torch.corrcoef(drawn) - torch.eye(4)).abs().max() < 0.025

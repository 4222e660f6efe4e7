"""The properties of sinusoids that the paper states (section 3.5), and other kinds of positions."""

import math

import pytest
import torch

from regard.errors import DataError
from regard.nn.positions import Positions, Rotation, sinusoids


def test_the_formula_by_hand():
    table = sinusoids(4, 4)
    # pos 3: sin(3), cos(3), then the wavelength is 100 times as long: sin(3/100), cos(3/100)
    expected = torch.tensor([math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)])
    torch.testing.assert_close(table[3], expected)


@pytest.mark.parametrize("offset", [1, 7, 64])
def test_a_fixed_offset_is_the_same_linear_map_at_every_position(offset):
    width = 16
    table = sinusoids(300, width).double()
    rotation = torch.zeros(width, width, dtype=torch.float64)
    for i in range(width // 2):
        angle = offset / 10000 ** (2 * i / width)
        c, s = math.cos(angle), math.sin(angle)
        rotation[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[c, s], [-s, c]])
    torch.testing.assert_close(table[:-offset] @ rotation.T, table[offset:], rtol=0, atol=1e-5)


def test_the_dot_product_of_two_encodings_is_symmetric_depends_on_distance_only_and_decreases():
    table = sinusoids(200, 128).double()
    products = table @ table.T
    for distance in range(20):
        along = products.diagonal(distance)
        torch.testing.assert_close(along, along[:1].expand_as(along), rtol=0, atol=1e-4)
    middle = products[100]
    torch.testing.assert_close(middle[90:100].flip(0), middle[101:111], rtol=0, atol=1e-4)
    assert torch.all(middle[100:107].diff() < 0)
    assert middle[100].item() == pytest.approx(64, abs=1e-4)  # sin² + cos² = 1, once for each of 64 pairs


def test_the_table_grows_with_the_sentence():
    positions = Positions("sinusoid", 8, max_positions=4)
    out = positions.add(torch.zeros(10, 8), torch.arange(10), 10)
    torch.testing.assert_close(out, sinusoids(10, 8))


def test_learned_positions_refuse_longer_sentences():
    positions = Positions("learned", 8, max_positions=4)
    with pytest.raises(DataError, match=r"5 tokens .* 4 positions"):
        positions.add(torch.zeros(5, 8), torch.arange(5), 5)


def test_rotary_products_depend_on_the_distance_only(generator):
    q, k = torch.randn(1, 1, 8, generator=generator), torch.randn(1, 1, 8, generator=generator)

    def product(i, j):
        return (Rotation(torch.tensor([i]), 8)(q) * Rotation(torch.tensor([j]), 8)(k)).sum()

    torch.testing.assert_close(product(3, 1), product(50, 48), rtol=1e-4, atol=1e-5)
    assert abs(product(3, 1) - product(1, 3)) > 1e-3

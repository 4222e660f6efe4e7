"""Products of 8-bit integers: by hand, close to float32, and independent of the other rows."""

import pytest
import torch

from regard.nn import linear
from regard.nn.linear import FEWEST, LARGEST_WEIGHT, Int8Matrix


def test_by_hand(monkeypatch):
    monkeypatch.setattr(linear, "LARGEST_WEIGHT", 63)  # so that every processor computes this
    # Rows become [63, -32] and [63, 63] of scales 2/63 and 1/63, the input [127, 42] of scale 3/127.
    weight, x = torch.tensor([[2.0, -1.0], [1.0, 1.0]]), torch.tensor([[3.0, 1.0]])
    sums = torch.tensor([[127 * 63 - 42 * 32, 127 * 63 + 42 * 63]])
    expected = sums * torch.tensor([2.0, 1.0]) * 3 / (127 * 63) + torch.tensor([0.5, 0.0])
    found = Int8Matrix(weight).times(x, torch.tensor([0.5, 0.0]))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0.0)
    assert found[0, 0].item() == pytest.approx(3 * 2 - 1 * 1 + 0.5, abs=0.05)


@pytest.mark.parametrize("column_by_column", [False, True])
@pytest.mark.parametrize("rows", [1, 7, 130])
@pytest.mark.parametrize("largest", sorted({63, LARGEST_WEIGHT}))
def test_products_of_integers_are_exact_and_close_to_float32(generator, monkeypatch, largest, rows, column_by_column):
    monkeypatch.setattr(linear, "LARGEST_WEIGHT", largest)
    weight, x = torch.randn(96, 200, generator=generator), torch.randn(rows, 200, generator=generator)
    laid_out = weight.t().contiguous().t() if column_by_column else weight
    found = Int8Matrix(laid_out).times(x)
    limits = ((x, 127), (weight, largest))
    scales = [one.abs().amax(dim=1, keepdim=True) / limit for one, limit in limits]
    integers = [(one / scale).round() for one, scale in zip((x, weight), scales, strict=True)]
    torch.testing.assert_close(found, integers[0] @ integers[1].t() * scales[0] * scales[1].t(), rtol=1e-5, atol=1e-4)
    exact = x @ weight.t()
    assert 1e-4 < ((found - exact).norm() / exact.norm()).item() < 0.02


def test_a_row_does_not_depend_on_the_other_rows(generator):
    matrix, x = Int8Matrix(torch.randn(300, 64, generator=generator)), torch.randn(40, 64, generator=generator)
    x[7] *= 1000
    together = matrix.times(x)
    for row in (0, 7, 39):
        assert torch.equal(matrix.times(x[row : row + 1])[0], together[row])
    assert torch.equal(matrix.times(x.flip(0)).flip(0), together)


def test_zeros_stay_zeros_and_nan_is_passed_on():
    matrix = Int8Matrix(torch.tensor([[1.0, 2.0], [0.0, 0.0]]))
    assert matrix.times(torch.zeros(1, 2)).tolist() == [[0.0, 0.0]]
    assert matrix.times(torch.zeros(1, 2), torch.tensor([3.0, 4.0])).tolist() == [[3.0, 4.0]]
    assert matrix.times(torch.tensor([[float("nan"), 1.0]])).isnan().all()


def test_small_matrices_are_not_quantized():
    assert Int8Matrix.of(torch.zeros(FEWEST - 1, 1)) is None
    assert Int8Matrix.of(torch.ones(FEWEST // 64, 64)) is not None

"""Feed-forward layers, pointwise and convolutional."""

import pytest
import torch

from regard.data.ragged import Layout
from regard.nn.convolution import shift
from regard.nn.dropout import Noise
from regard.nn.feedforward import ConvFeedForward, FeedForward


def test_relu_by_hand():
    layer = FeedForward(2, 2, "relu", dropout=0.0, noise=Noise())
    with torch.no_grad():
        layer.inner.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, -1.0]]))
        layer.outer.weight.copy_(torch.tensor([[1.0, 1.0], [2.0, 0.0]]))
        layer.outer.bias.copy_(torch.tensor([0.5, 0.0]))
    # x = (3, 4): hidden = max(0, (3, -4)) = (3, 0); out = (3 + 0 + .5, 6)
    x = torch.tensor([[3.0, 4.0]])
    out, again = layer(x, Layout([1]), with_input=True)
    assert out.tolist() == layer(x).tolist() == [[3.5, 6.0]]
    assert torch.equal(again, x)


def test_shift_stays_inside_its_sentence():
    x = torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0]])
    layout = Layout([3, 2])
    assert shift(x, layout, 1).flatten().tolist() == [0, 1, 2, 0, 4]
    assert shift(x, layout, -1).flatten().tolist() == [2, 3, 0, 5, 0]
    assert shift(x, layout, 2).flatten().tolist() == [0, 0, 1, 0, 0]


@pytest.mark.parametrize("by", [5, 6, 9, 10, 11, -5, -6, -9, -10, -11])
def test_nothing_is_shifted_in_from_beyond_a_single_sentence(by):
    x = torch.arange(1.0, 6.0)[:, None]
    assert shift(x, Layout([5]), by).flatten().tolist() == [0] * 5


def test_the_convolution_is_torchs_conv1d(generator):
    layer = ConvFeedForward(4, 6, causal=False, dropout=0.0, noise=Noise())
    x = torch.randn(9, 4, generator=generator)
    reference = x.t()[None]
    for linear in (layer.inner, layer.outer):
        kernel = linear.weight.unflatten(1, (3, -1)).transpose(1, 2)
        reference = torch.nn.functional.conv1d(reference, kernel, linear.bias, padding=1)
        reference = reference.relu() if linear is layer.inner else reference
    torch.testing.assert_close(layer(x, Layout([9])), reference[0].t(), rtol=1e-5, atol=1e-5)

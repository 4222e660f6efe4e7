"""Attention of one token per row: batched products and the fused kernel give the same."""

import pytest
import torch

from regard.nn import attention
from regard.nn.attention import HeadShape, MultiHead
from regard.nn.dropout import Noise

B, H, S = 3, 2, 5


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize(("groups", "long"), [(1, False), (B * H, False), (B * H, True)])  # of the bias: its shape
@pytest.mark.parametrize("value_width", [8, 12])
def test_batched_products_and_the_fused_kernel_agree(monkeypatch, generator, beams, groups, long, value_width):
    shape = HeadShape(num_heads=H, key_width=8, value_width=value_width)
    layer = MultiHead(16, shape, dropout=0.0, noise=Noise(), backend="auto").eval()
    q = torch.randn(B * beams, H, 8, generator=generator)
    k, v = (torch.randn(B * H, S, width, generator=generator) for width in (8, value_width))
    bias = torch.zeros(groups, beams if long else 1, S)
    bias[:, :, 2] = float("-inf")
    found = []
    for batched in (True, False):
        monkeypatch.setattr(attention, "BATCHED_PRODUCTS", batched)
        with torch.inference_mode():
            found.append(layer.attend_step(q, k, v, bias))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)
    assert found[0].abs().max() > 0.1

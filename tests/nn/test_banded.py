"""Attention by blocks: the same numbers as the full matrix with a mask, at a cost of length times window."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.data.ragged import Layout
from regard.nn.attend import AttentionMask, attend, attend_explicit
from regard.nn.dropout import Dropout, Noise

LENGTHS = (130, 5, 297, 1, 64)


def inputs_of(total, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(total, 2, 8, generator=generator, dtype=dtype).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("backend", ["explicit", "sdpa"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 3, 40])
def test_equals_the_full_matrix_with_a_mask(backend, causal, window):
    mask = AttentionMask(Layout(LENGTHS), causal=causal, window=window)
    assert mask.banded
    inputs = inputs_of(sum(LENGTHS))
    weight = torch.linspace(-1, 1, sum(LENGTHS) * 16, dtype=torch.float64).view(-1, 2, 8)
    ours, reference = attend(*inputs, mask, backend=backend), attend_explicit(*inputs, mask)[0]
    torch.testing.assert_close(ours, reference, rtol=1e-6, atol=1e-6)
    expected = torch.autograd.grad((reference * weight).sum(), inputs)
    for left, right in zip(torch.autograd.grad((ours * weight).sum(), inputs), expected, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_dropout_keeps_the_mean():
    mask = AttentionMask(Layout([400]), window=4)
    inputs = inputs_of(400, torch.float32)
    drop, plain = Dropout(0.5, Noise()), attend(*inputs, mask, backend="sdpa")
    assert not torch.allclose(attend(*inputs, mask, backend="sdpa", drop=drop), plain)
    many = torch.stack([attend(*inputs, mask, backend="sdpa", drop=drop) for _ in range(400)]).mean(dim=0)
    assert (many - plain).abs().mean() < 0.05 * plain.abs().mean() + 0.05


def operations(length, **mask):
    q, k, v = (x.detach() for x in inputs_of(length, torch.float32))
    with FlopCounterMode(display=False) as counter:
        attend(q, k, v, AttentionMask(Layout([length]), **mask), backend="explicit")
    return counter.get_total_flops()


def test_the_cost_grows_with_length_and_not_with_its_square():
    assert operations(4096, window=32) == 2 * operations(2048, window=32)
    assert operations(2048) == 4 * operations(1024)  # the full matrix
    assert operations(2048, window=128) == 4 * operations(2048, window=32)
    # 3 blocks of 32 keys per query, two products of 2 * 8 operations per key in each of 2 heads
    assert operations(2048, window=32) == 2048 * 96 * 2 * (2 * 8) * 2


@pytest.mark.parametrize("backend", ["explicit", "sdpa"])
def test_thirty_two_thousand_tokens(backend):
    n, window = 32_768, 8
    q, k, v = (x.detach() for x in inputs_of(n, torch.float32))
    out = attend(q, k, v, AttentionMask(Layout([n]), window=window), backend=backend)
    for place in (0, 5, 31, 32, 20_000, n - 1):
        seen = slice(max(0, place - window), min(n, place + window + 1))
        scores = (q[place, :, None] * k[seen].transpose(0, 1)).sum(-1) * 8**-0.5
        expected = (scores.softmax(-1)[:, :, None] * v[seen].transpose(0, 1)).sum(1)
        torch.testing.assert_close(out[place], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["varlen", "tiled"])
def test_thirty_two_thousand_tokens_on_a_gpu(backend):
    n, window = 32_768, 8
    q, k, v = (x.detach().to("cuda", torch.bfloat16) for x in inputs_of(n, torch.float32))
    mask = AttentionMask(Layout([n], "cuda"), window=window)
    ours, reference = (attend(q, k, v, mask, backend=one) for one in (backend, "explicit"))
    torch.testing.assert_close(ours, reference, rtol=0.03, atol=0.03)

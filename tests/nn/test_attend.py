"""The backends of attend() compute the same, and what they compute is attention."""

import pytest
import torch

from regard.data.ragged import Layout
from regard.nn.attend import AttentionMask, attend, attend_explicit

LENGTHS = (5, 1, 7, 3)
OTHER_LENGTHS = (2, 6, 4, 4)
PATTERNS = {
    "self": lambda device: AttentionMask(Layout(LENGTHS, device)),
    "causal": lambda device: AttentionMask(Layout(LENGTHS, device), causal=True),
    "even": lambda device: AttentionMask(Layout((4, 4, 4), device), causal=True),
    "cross": lambda device: AttentionMask(Layout(LENGTHS, device), Layout(OTHER_LENGTHS, device)),
    "window": lambda device: AttentionMask(Layout(LENGTHS, device), window=2),
    "causal window": lambda device: AttentionMask(Layout(LENGTHS, device), causal=True, window=1),
}


def random_qkv(mask, *, heads=2, width=8, value_width=8, dtype=torch.float64, device="cpu"):
    generator = torch.Generator().manual_seed(1)
    sizes = ((mask.queries.total, width), (mask.keys.total, width), (mask.keys.total, value_width))
    tensors = (torch.randn(n, heads, k, generator=generator, dtype=torch.float64) for n, k in sizes)
    return [tensor.to(device, dtype).requires_grad_() for tensor in tensors]


def output_and_gradients(inputs, mask, backend, drop=None):
    out = attend(*inputs, mask, backend=backend, drop=drop)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).view_as(out)
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), inputs)]


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("value_width", [8, 5])
def test_sdpa_equals_explicit_forward_and_backward(name, value_width):
    mask = PATTERNS[name]("cpu")
    inputs = random_qkv(mask, value_width=value_width)
    for ours, reference in zip(
        output_and_gradients(inputs, mask, "sdpa"), output_and_gradients(inputs, mask, "explicit"), strict=True
    ):
        torch.testing.assert_close(ours, reference, rtol=1e-6, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("name", PATTERNS)
def test_varlen_equals_explicit_forward_and_backward(name):
    mask = PATTERNS[name]("cuda")
    inputs = random_qkv(mask, width=32, value_width=32, dtype=torch.bfloat16, device="cuda")
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    for ours, reference in zip(
        output_and_gradients(inputs, mask, "varlen"), output_and_gradients(exact, mask, "explicit"), strict=True
    ):
        torch.testing.assert_close(ours.double(), reference, rtol=0.03, atol=0.03)


def test_one_query_and_two_keys_by_hand():
    # Scores (2, 0) / sqrt(4) = (1, 0), so the weights are e/(e+1) and 1/(e+1).
    mask = AttentionMask(Layout([1]), Layout([2]))
    q = torch.tensor([[[2.0, 0.0, 0.0, 0.0]]])
    k = torch.tensor([[[1.0, 0.0, 0.0, 0.0]], [[0.0, 1.0, 0.0, 0.0]]])
    v = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    e = torch.e
    torch.testing.assert_close(attend(q, k, v, mask)[0, 0], torch.tensor([e / (e + 1), 1 / (e + 1)]))


@pytest.mark.parametrize("name", PATTERNS)
def test_weights_of_each_query_sum_to_one_and_are_zero_for_masked_keys(name):
    mask = PATTERNS[name]("cpu")
    _, weights = attend_explicit(*random_qkv(mask), mask)
    assert len(weights) == len(mask.queries.lengths)
    for sentence in weights:
        torch.testing.assert_close(sentence.sum(dim=-1), torch.ones(sentence.shape[:2], dtype=torch.float64))
        allowed = mask.allowed(*sentence.shape[1:])
        if allowed is not None:
            assert torch.all(sentence[:, ~allowed] == 0)


def test_a_window_of_one_sees_itself_and_one_neighbour_on_each_side():
    allowed = AttentionMask(Layout([4]), window=1).allowed(4, 4)
    assert allowed.int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    allowed = AttentionMask(Layout([4]), causal=True, window=1).allowed(4, 4)
    assert allowed.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize("backend", ["explicit", "sdpa"])
def test_dropout_on_the_weights_reaches_the_result(backend):
    mask = PATTERNS["causal"]("cpu")
    inputs = random_qkv(mask)
    halved = attend(*inputs, mask, backend=backend, drop=lambda weights: weights * 0.5)
    torch.testing.assert_close(halved, attend(*inputs, mask) * 0.5)

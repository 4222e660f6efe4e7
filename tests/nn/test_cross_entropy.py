"""The loss by hand, and its fused form against the explicit one."""

import math

import pytest
import torch

from regard.nn.cross_entropy import cross_entropy, linear_cross_entropy
from regard.nn.device import cpu_has_bfloat16


def test_uniform_logits_cost_log_of_the_vocabulary():
    for smoothing in (0.0, 0.1):
        loss = cross_entropy(torch.zeros(2, 4), torch.tensor([1, 2]), smoothing=smoothing)
        assert loss.item() == pytest.approx(2 * math.log(4))


def test_smoothing_by_hand():
    # Probabilities 1/2, 1/4, 1/4; target 0; epsilon 0.3: 0.7 log 2 + 0.1 (log 2 + 2 log 4) = 1.2 log 2
    logits = torch.tensor([[2.0, 1.0, 1.0]]).log()
    loss = cross_entropy(logits, torch.tensor([0]), smoothing=0.3)
    assert loss.item() == pytest.approx(1.2 * math.log(2))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_the_fused_loss_and_its_gradients_equal_the_explicit_ones(monkeypatch, generator, smoothing, chunk):
    monkeypatch.setattr("regard.nn.cross_entropy.CHUNK_LOGITS", chunk * 13)
    hidden = torch.randn(20, 8, generator=generator, dtype=torch.float64).float().requires_grad_()
    weight = torch.randn(13, 8, generator=generator).requires_grad_()
    labels = torch.randint(13, (20,), generator=generator)
    fused = linear_cross_entropy(hidden, weight, labels, smoothing=smoothing)
    plain = cross_entropy(hidden @ weight.t(), labels, smoothing=smoothing)
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-5)
    reference = torch.nn.functional.cross_entropy(
        hidden @ weight.t(), labels, label_smoothing=smoothing, reduction="sum"
    )
    torch.testing.assert_close(plain, reference, rtol=1e-5, atol=1e-5)
    ours = torch.autograd.grad(fused * 0.5, (hidden, weight))
    theirs = torch.autograd.grad(plain * 0.5, (hidden, weight))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_very_unlikely_token_has_a_finite_loss():
    hidden, weight = torch.tensor([[1000.0]]), torch.tensor([[1.0], [-1.0]])
    assert linear_cross_entropy(hidden, weight, torch.tensor([1]), smoothing=0.0).item() == pytest.approx(2000.0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_in_half_precision_the_gradient_of_a_nearly_certain_token_is_still_right(smoothing):
    if not cpu_has_bfloat16():
        pytest.skip("this CPU would emulate bfloat16")
    generator = torch.Generator().manual_seed(1)
    hidden, weight = torch.randn(8, 16, generator=generator), torch.randn(8, 16, generator=generator)
    weight = (hidden * 0.9).clone()  # each token's own row is by far the likeliest
    labels = torch.arange(8)

    def gradients(dtype):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            linear_cross_entropy(h, w, labels, smoothing=smoothing).backward()
        return h.grad, w.grad

    for half, whole in zip(gradients(torch.bfloat16), gradients(torch.float32), strict=True):
        assert half.dtype == torch.float32
        assert ((half - whole).norm() / whole.norm()).item() < 0.1

"""Gradients by two threads: errors, existing gradients, and settings that are restored."""

import pytest
import torch

from regard.data.batch import make_batch
from regard.models import build_model
from regard.nn import device
from regard.training.data_parallel import backward_in_two_threads

TABLE = {"kind": "transformer", "width": 16, "num_layers": 1, "num_heads": 2, "hidden": 32, "dropout": 0.0}


@pytest.fixture
def model():
    return build_model(TABLE, source_size=12, target_size=12)


def batches(*lengths):
    return [(number, make_batch([[5] * length], [[6] * length])) for number, length in enumerate(lengths)]


@pytest.mark.parametrize("bad", [3, 4])  # the first thread's batch, the second's
def test_an_error_in_either_thread_is_raised_and_the_thread_count_restored(model, threads, bad):
    threads(3)

    def loss(batch):
        if batch.num_tokens == bad + 1:
            raise ValueError("no")
        return model(batch, smoothing=0.0)

    with pytest.raises(ValueError, match="no"):
        backward_in_two_threads(model, loss, batches(3, 4))
    assert torch.get_num_threads() == 3
    assert all(parameter.grad is None for parameter in model.parameters())
    assert backward_in_two_threads(model, lambda batch: model(batch, smoothing=0.0), batches(5, 6)) > 0


def test_gradients_are_added_to_existing_ones(model, threads):
    threads(2)
    once = batches(3, 4, 5)
    for _ in range(2):
        backward_in_two_threads(model, lambda batch: model(batch, smoothing=0.0), once)
    twice = [parameter.grad for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    for _, batch in once:
        model(batch, smoothing=0.0).backward()
    for parameter, gradient in zip(model.parameters(), twice, strict=True):
        torch.testing.assert_close(gradient, 2 * parameter.grad, rtol=1e-4, atol=1e-5)


def test_two_parameters_with_a_shared_gradient_get_separate_memory(threads):
    threads(2)
    one, other = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    holder = build_model(TABLE, source_size=12, target_size=12)
    holder.parameters = lambda: iter([one, other])
    backward_in_two_threads(holder, lambda batch: (one + other).sum() * batch.num_tokens, batches(3, 4, 5))
    assert one.grad.tolist() == other.grad.tolist() == [4.0 + 5 + 6] * 2
    assert one.grad.data_ptr() != other.grad.data_ptr()


@pytest.mark.parametrize("fails", [False, True])
def test_own_blas_restores_the_mkldnn_switch(monkeypatch, fails):
    monkeypatch.setattr(device, "ON_ARM", True)
    before = torch.backends.mkldnn.enabled
    try:
        with device.own_blas(torch.device("cpu"), torch.float32):
            assert not torch.backends.mkldnn.enabled
            if fails:
                raise ValueError("no")
    except ValueError:
        assert fails
    assert torch.backends.mkldnn.enabled == before
    with device.own_blas(torch.device("cpu"), torch.bfloat16):
        assert torch.backends.mkldnn.enabled == before

"""Laws of recording attention: the model computes the same, and what is recorded are weights."""

import pytest
import torch

from regard.data.ragged import Ragged
from regard.models.base import WriteOptions
from regard.nn.attention_log import capture_attention, current_log
from tests.laws.conftest import SOURCES


def weights_of(log):
    """The weights of the first sentence, of every attention and call."""
    return [call[0] for calls in log.calls.values() for call in calls]


def first_of(batch):
    return Ragged.from_lists(batch.as_lists()[:1])


def test_recording_changes_no_output(model, source, target):
    with torch.no_grad():
        plain = model.hidden(target, model.encode(source))
        with capture_attention():
            recorded = model.hidden(target, model.encode(source))
    torch.testing.assert_close(recorded, plain, rtol=1e-4, atol=1e-5)
    assert current_log() is None


def test_weights_are_not_negative_and_sum_to_one(model, source, target):
    with torch.no_grad(), capture_attention() as log:
        model.hidden(first_of(target), model.encode(first_of(source)))
    # Local attention multiplies its weights by a bell, so that they sum to less.
    local = getattr(getattr(model, "alignment", None), "window", None) is not None
    for weights_HQK in weights_of(log):
        assert weights_HQK.min() >= 0
        total = weights_HQK.sum(dim=-1)
        assert (total <= 1 + 1e-5).all() and (local or (total >= 1 - 1e-5).all())


def test_non_autoregressive_models_are_recorded_too(non_autoregressive):
    source = Ragged.from_lists(SOURCES[:1])
    options = WriteOptions(limits=[6], iterations=2)
    with torch.no_grad():
        plain = non_autoregressive.write(non_autoregressive.encode(source), options)
        with capture_attention() as log:
            recorded = non_autoregressive.write(non_autoregressive.encode(source), options)
    assert [one.ids for one in recorded[0]] == [one.ids for one in plain[0]]
    for weights_HQK in weights_of(log):
        torch.testing.assert_close(weights_HQK.sum(dim=-1), torch.ones(weights_HQK.shape[:2]))
    # Two encoder layers, and two attentions in each of two decoder layers.
    assert len(log.calls) >= 6


def test_a_model_with_attention_is_recorded(model, source, target):
    with torch.no_grad(), capture_attention() as log:
        model.hidden(target, model.encode(source))
    # The attention of a recurrent pointer network is its output.
    without = type(model).__name__ in ("ByteNet", "PointerLstm")
    attends = getattr(model.config, "attention", "yes") != "none" and not without
    assert bool(log.calls) == attends


def test_recording_ends_with_an_error():
    with pytest.raises(RuntimeError), capture_attention():
        raise RuntimeError
    assert current_log() is None

"""Laws of looking: whoever is watched does the same as ever, and shows weights that are weights."""

import pytest
import torch

from regard.data.ragged import Ragged
from regard.nn.attention_log import capture_attention, current_log

SOURCES = [[5, 6, 7, 8, 2], [9, 2], [3, 4, 5, 2]]
TARGETS = [[1, 4, 5], [1, 7, 8, 9, 3, 3], [1, 9]]


def weights_of(seen):
    """Those of the first sentence, of every attention and call."""
    return [call[0] for calls in seen.calls.values() for call in calls]


def test_being_watched_changes_nothing_that_is_written(model):
    source, target = Ragged.from_lists(SOURCES), Ragged.from_lists(TARGETS)
    with torch.no_grad():
        plain = model.hidden(target, model.encode(source))
        with capture_attention():
            watched = model.hidden(target, model.encode(source))
    torch.testing.assert_close(watched, plain, rtol=1e-4, atol=1e-5)
    assert current_log() is None


def test_weights_are_shares_of_what_there_is_to_see(model):
    with torch.no_grad(), capture_attention() as seen:
        model.hidden(Ragged.from_lists(TARGETS[:1]), model.encode(Ragged.from_lists(SOURCES[:1])))
    for weights_HQK in weights_of(seen):
        assert weights_HQK.min() >= 0
        total = weights_HQK.sum(dim=-1)
        whole = getattr(getattr(model, "alignment", None), "window", None) is None  # else a bell weighs what is near
        assert (total <= 1 + 1e-5).all() and (not whole or (total >= 1 - 1e-5).all())


def test_models_that_write_at_once_are_watched_too(non_autoregressive):
    source = Ragged.from_lists(SOURCES[:1])
    options = {"limits": [6], "candidates": 1, "iterations": 2}
    with torch.no_grad():
        plain = non_autoregressive.write(non_autoregressive.encode(source), **options)
        with capture_attention() as seen:
            watched = non_autoregressive.write(non_autoregressive.encode(source), **options)
    assert [one.ids for one in watched[0]] == [one.ids for one in plain[0]]
    for weights_HQK in weights_of(seen):
        torch.testing.assert_close(weights_HQK.sum(dim=-1), torch.ones(weights_HQK.shape[:2]))
    assert len(seen.calls) >= 6  # two layers of the encoder, and two each of the decoder's two


def test_who_attends_is_seen(model):
    with torch.no_grad(), capture_attention() as seen:
        model.hidden(Ragged.from_lists(TARGETS), model.encode(Ragged.from_lists(SOURCES)))
    attends = getattr(model.config, "attention", "yes") != "none" and type(model).__name__ != "ByteNet"
    assert bool(seen.calls) == attends


def test_nobody_is_watched_after_an_error():
    with pytest.raises(RuntimeError), capture_attention():
        raise RuntimeError
    assert current_log() is None

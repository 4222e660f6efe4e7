"""Batches written ahead by a thread are the loader's own, and its errors are heard."""

import threading
from itertools import islice

import pytest
import torch

from regard.data.batch_sampler import Position
from regard.errors import DataError
from regard.training.prefetch import prefetch
from regard.training.world import World
from tests.data.test_packing import loader_of, sides_of


def test_the_feed_gives_what_the_loader_gives():
    loader = loader_of(sides_of(2_000))
    ours = list(islice(prefetch(loader, Position(0, 0, 2), World()), 12))
    theirs = list(islice(loader.batches(Position(0, 0, 2)), 12))
    for (batch, position), (other, other_position) in zip(ours, theirs, strict=True):
        assert torch.equal(batch.row, other.row)
        assert batch.num_tokens == other.num_tokens and position == other_position


def test_an_error_in_the_thread_reaches_whoever_waits():
    loader = loader_of(sides_of(100))
    loader.dataset_of = lambda epoch: (_ for _ in ()).throw(DataError("the text is gone"))
    with pytest.raises(DataError, match="the text is gone"):
        next(prefetch(loader, Position(), World()))


def test_the_thread_ends_with_its_reader():
    batches = prefetch(loader_of(sides_of(5_000)), Position(), World())
    next(batches)
    (thread,) = [one for one in threading.enumerate() if one.name == "prefetch"]
    batches.close()
    assert not thread.is_alive()

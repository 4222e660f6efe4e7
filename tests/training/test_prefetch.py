"""Prefetched batches equal those of the loader, and errors of the thread are raised in the reader."""

import threading
from itertools import islice

import pytest
import torch

from regard.data.batch_sampler import Position
from regard.errors import DataError
from regard.training.prefetch import prefetch
from regard.training.world import World
from tests.data.test_packing import loader_of, sides_of


def test_prefetched_batches_equal_those_of_the_loader():
    loader = loader_of(sides_of(2_000))
    ours = list(islice(prefetch(loader, Position(0, 0, 2), World()), 12))
    theirs = list(islice(loader.batches(Position(0, 0, 2)), 12))
    for (batch, position), (other, other_position) in zip(ours, theirs, strict=True):
        assert torch.equal(batch.row, other.row)
        assert batch.num_tokens == other.num_tokens and position == other_position


def test_an_error_in_the_thread_is_raised_in_the_reader():
    loader = loader_of(sides_of(100))
    loader.dataset_of = lambda epoch: (_ for _ in ()).throw(DataError("the text is gone"))
    with pytest.raises(DataError, match="the text is gone"):
        next(prefetch(loader, Position(), World()))


def test_the_thread_ends_when_the_reader_stops():
    batches = prefetch(loader_of(sides_of(5_000)), Position(), World())
    next(batches)
    (thread,) = [one for one in threading.enumerate() if one.name == "prefetch"]
    batches.close()
    assert not thread.is_alive()


def test_the_next_epoch_is_drawn_while_the_current_one_is_used():
    drawn = []
    ready = threading.Event()

    def fresh(epoch):
        drawn.append((epoch, threading.current_thread().name.split("_")[0]))
        if epoch == 1:
            ready.set()
        return sides_of(2_000, seed=epoch)

    loader = loader_of(sides_of(2_000))
    loader.dataset_of = fresh
    batches = prefetch(loader, Position(), World())
    _, position = next(batches)
    assert position.epoch == 0 and ready.wait(timeout=30)
    ours = list(islice(batches, 19))
    assert ours[-1][1].epoch >= 1
    batches.close()
    assert drawn[:2] == [(0, "epochs"), (1, "epochs")]
    theirs = list(islice(loader.batches(Position()), 1, 20))
    for (batch, _), (other, _) in zip(ours, theirs, strict=True):
        assert torch.equal(batch.row, other.row)

"""Blocks of pairs: every pair once per epoch, and resuming at any position without reading what comes before it."""

from itertools import islice
from typing import ClassVar

import numpy as np
import pytest

from regard.data import batch_sampler
from regard.data.batch import ADDED, collate_pairs
from regard.data.batch_sampler import Loader, Position
from regard.data.columns import Column, pair_columns
from regard.data.packing import PackedLoader
from regard.errors import DataError


class RecordingColumn(Column):
    """A column that records which rows are read."""

    asked: ClassVar[set[int]] = set()

    def lengths_of(self, rows):
        RecordingColumn.asked |= set(rows.tolist())
        return super().lengths_of(rows)


def sides_of(count):
    lengths = np.random.default_rng(0).integers(1, 9, count)
    offsets = np.concatenate([[0], lengths.cumsum()])
    return pair_columns(*(RecordingColumn(np.arange(offsets[-1], dtype=np.int32), offsets) for _ in range(2)))


@pytest.fixture(params=[Loader, PackedLoader])
def loader(request, monkeypatch):
    monkeypatch.setattr(batch_sampler, "EXAMPLES_PER_BLOCK", 100)
    sides = sides_of(1_000)
    return request.param(lambda epoch: sides, collate_pairs, added=ADDED, budget=64, max_length=50, seed=1)


def test_every_pair_occurs_once_per_epoch(loader):
    seen = []
    for block in range(10):
        _, plan, num_blocks = loader.plan(0, block)
        assert num_blocks == 10
        seen += [row for rows in plan for row in rows.tolist()]
    assert len(seen) == len(set(seen))
    # Packing leaves out a last batch that is not full.
    assert len(seen) == 1_000 if isinstance(loader, Loader) else len(seen) > 900


def test_batches_resume_at_any_position_in_any_block(loader):
    batches = list(islice(loader.batches(Position()), 200))
    assert {after.epoch for _, after in batches} >= {0, 1} and max(after.block for _, after in batches) == 9
    for done in (0, 7, 40, 99, 150):
        again = islice(loader.batches(batches[done][1]), 10)
        for (batch, after), (other, other_after) in zip(again, batches[done + 1 :], strict=False):
            assert after == other_after and batch.num_tokens == other.num_tokens
            assert batch.as_lists() == other.as_lists()


def test_resuming_reads_nothing_of_earlier_blocks(loader):
    RecordingColumn.asked = set()
    next(loader.batches(Position(0, 7, 2)))
    _, *rest = loader.plan(0, 7)
    RecordingColumn.asked -= set(np.concatenate(rest[0]).tolist())
    assert len(RecordingColumn.asked) <= 20  # those of the same block that are in no batch


def test_a_corpus_without_a_short_enough_example_is_refused(monkeypatch):
    monkeypatch.setattr(batch_sampler, "EXAMPLES_PER_BLOCK", 100)
    sides = sides_of(300)
    with pytest.raises(DataError, match="every example has a sequence of more than 0 tokens"):
        next(
            Loader(lambda epoch: sides, collate_pairs, added=ADDED, budget=64, max_length=0, seed=1).batches(Position())
        )


@pytest.mark.parametrize("kind", [Loader, PackedLoader])
def test_an_epoch_that_leaves_out_more_examples_than_those_before_it_is_reported(kind):
    """Up to 20 tokens are kept. Packed batches have the shape of the first epoch, whose longest examples have 9 tokens."""
    lengths = {0: [9] * 30, 1: [9] * 29 + [21], 2: [9] * 29 + [22], 3: [9] * 26 + [15, 15, 21, 21]}
    drawn = {
        epoch: pair_columns(*[Column.from_lists([[3] * one for one in some])] * 2) for epoch, some in lengths.items()
    }
    loader = kind(lambda epoch: drawn[epoch], collate_pairs, added=ADDED, budget=64, max_length=20, seed=1)
    for epoch in (0, 1, 1, 2, 3):
        loader.plan(epoch)
    first, last = loader.notices
    assert first == "of 30 examples, epoch 1 leaves out 1 with more than 20 tokens on a side"
    more = " and 2 longer than those of the first epoch" if kind is PackedLoader else ""
    assert last == f"of 30 examples, epoch 3 leaves out 2 with more than 20 tokens on a side{more}"


def test_examples_that_the_user_knows_of_are_not_reported_again():
    columns = pair_columns(*[Column.from_lists([[3] * one for one in (5, 30)])] * 2)
    loader = Loader(lambda epoch: columns, collate_pairs, added=ADDED, budget=64, max_length=20, seed=1, left_out=1)
    loader.plan(0)
    assert not loader.notices

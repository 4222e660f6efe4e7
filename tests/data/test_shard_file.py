"""Ranges of a file read by position: the same values as in memory, and an error if the file has changed."""

import os

import numpy as np
import pytest

from regard.data import shard_file
from regard.data.columns import Column
from regard.data.shard_file import ShardSide, read_ranges
from regard.errors import DataError
from regard.storage.folder import Folder

IDS = np.dtype("<u2")


@pytest.fixture
def side(tmp_path):
    """A side of 400 sentences, some of them empty, and the same in memory."""
    generator = np.random.default_rng(0)
    sentences = [generator.integers(100, size=generator.integers(9)).tolist() for _ in range(400)]
    store = Column.from_lists(sentences, "uint16")
    (tmp_path / "a.ids").write_bytes(store.values.tobytes())
    (tmp_path / "a.offsets").write_bytes(store.offsets.tobytes())
    one = ShardSide(Folder(tmp_path), "a", IDS, 400, len(store.values), longest=8, vocabulary=100)
    return one, store


@pytest.mark.parametrize("gap", [0, 16, 2**15])
@pytest.mark.parametrize("buffer", [16, 64, 2**22])
def test_sentences_equal_those_of_an_array_in_memory(side, gap, buffer, monkeypatch):
    monkeypatch.setattr(shard_file, "LARGEST_GAP", gap)
    monkeypatch.setattr(shard_file, "BUFFER", buffer)
    one, store = side
    generator = np.random.default_rng(1)
    for count in (1, 2, 30, 200, 400):
        rows = np.sort(generator.choice(400, size=count, replace=False))
        expected, found = store.take(rows), one.take(rows)
        assert np.array_equal(found.values, expected.values) and found.values.dtype == expected.values.dtype
        assert np.array_equal(found.offsets, expected.offsets)
        assert np.array_equal(one.lengths_of(rows), store.lengths_of(rows))


def test_empty_sentences_have_no_ids(side):
    one, store = side
    empty = np.flatnonzero(store.lengths == 0)
    assert len(empty) and len(one.take(empty[:1]).values) == 0


def test_nearby_ranges_are_read_together_and_distant_ones_separately(side, monkeypatch):
    one, _ = side
    calls, pread = [], shard_file.os.preadv

    def count(descriptor, buffers, position):
        calls.append(position)
        return pread(descriptor, buffers, position)

    monkeypatch.setattr(shard_file.os, "preadv", count)
    begins = np.array([0, 10, 20, 700])
    read_ranges(one.folder, "a.ids", IDS, begins, begins + 5, size=one.tokens)
    assert calls == [0]
    monkeypatch.setattr(shard_file, "LARGEST_GAP", 100)
    calls.clear()
    read_ranges(one.folder, "a.ids", IDS, begins, begins + 5, size=one.tokens)
    assert calls == [0, 1400]


@pytest.mark.parametrize("name", ["ids", "offsets"])
def test_a_file_that_is_shorter_longer_or_missing_is_named(side, tmp_path, name):
    one, _ = side
    path, rows = tmp_path / f"a.{name}", np.arange(400)
    content = path.read_bytes()
    for changed in (content[:-1], content[:10], b"", content + b"\0"):
        path.write_bytes(changed)
        with pytest.raises(DataError, match=rf"{path} has {len(changed):,} bytes, not {len(content):,}; restore it"):
            one.take(rows)
    path.unlink()
    with pytest.raises(DataError, match=rf"{path} is missing; restore it"):
        one.take(rows)


def test_a_file_that_is_truncated_while_it_is_read_is_named(side, tmp_path, monkeypatch):
    one, _ = side
    preadv = shard_file.os.preadv

    def truncate_first(descriptor, buffers, position):
        if os.fstat(descriptor).st_ino == os.stat(tmp_path / "a.ids").st_ino:
            os.truncate(tmp_path / "a.ids", 100)
        return preadv(descriptor, buffers, position)

    monkeypatch.setattr(shard_file.os, "preadv", truncate_first)
    with pytest.raises(DataError, match=r"ids ends at byte 100: it was truncated; restore it"):
        one.take(np.arange(400))


@pytest.mark.parametrize("wrong", [-1, 2**62, -(2**62), 0, 10**6])
def test_offsets_that_cannot_be_right_are_refused(side, tmp_path, wrong):
    one, store = side
    offsets = store.offsets.copy()
    offsets[200] = wrong
    (tmp_path / "a.offsets").write_bytes(offsets.tobytes())
    for rows in (np.arange(400), np.array([199]), np.array([200])):
        with pytest.raises(DataError, match="offsets has offsets that cannot be right; restore it"):
            one.take(rows)


def test_ids_outside_the_vocabulary_are_refused(side, tmp_path):
    one, store = side
    ids = store.values.copy()
    ids[5] = 100
    (tmp_path / "a.ids").write_bytes(ids.tobytes())
    with pytest.raises(DataError, match="ids has ids outside the vocabulary of 100; restore it"):
        one.take(np.arange(400))

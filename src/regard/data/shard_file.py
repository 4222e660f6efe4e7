"""Sentences of one side of a shard, read from its files by position.

Files are read, not mapped into memory: if one is truncated or replaced while training runs, reading raises an error with a
clear message, where a mapping would end the process with a bus error. Values are checked before they are used as indices.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from regard.data.columns import Column
from regard.errors import CheckpointError, DataError
from regard.messages import counted
from regard.storage.folder import Folder

OFFSETS = np.dtype("<i8")
# Bytes. Ranges with a smaller gap are read together: copying so many bytes takes as long as another system call.
LARGEST_GAP = 2**12
BUFFER = 2**20  # bytes that are read before they are copied to the result; limits the memory

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class ShardSide:
    """The files of one side of a shard, and the limits that their values must keep."""

    folder: Folder
    name: str  # of the side
    dtype: np.dtype[Any]
    pairs: int
    tokens: int
    longest: int  # most tokens of a sentence
    vocabulary: int | None  # ids are below this; None: unknown

    def lengths_of(self, rows: Numbers) -> Numbers:
        """Return the number of tokens of these sentences, given in ascending order."""
        begins, ends = self._bounds(rows)
        return ends - begins

    def take(self, rows: Numbers) -> Column:
        """Return these sentences, given in ascending order, as a column in memory."""
        begins, ends = self._bounds(rows)
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), (ends - begins).cumsum()])
        ids = read_ranges(self.folder, f"{self.name}.ids", self.dtype, begins, ends, size=self.tokens)
        if len(ids) and self.vocabulary is not None and not 0 <= ids.min() <= ids.max() < self.vocabulary:
            _damaged(self.folder.path / f"{self.name}.ids", f"has ids outside the vocabulary of {self.vocabulary:,}")
        return Column(ids, offsets)

    def _bounds(self, rows: Numbers) -> tuple[Numbers, Numbers]:
        """Return where each sentence begins and ends among the ids."""
        name = f"{self.name}.offsets"
        pairs = read_ranges(self.folder, name, OFFSETS, rows, rows + 2, size=self.pairs + 1).reshape(-1, 2)
        begins, ends = np.ascontiguousarray(pairs.T).astype(np.int64, copy=False)
        lengths = ends - begins
        ascending = (
            begins[0] >= 0 and ends[-1] <= self.tokens and (lengths >= 0).all() and (begins[1:] >= ends[:-1]).all()
        )
        if not ascending or lengths.max() > self.longest:
            _damaged(self.folder.path / f"{self.name}.offsets", "has offsets that cannot be right")
        return begins, ends


def read_ranges(
    folder: Folder, name: str, dtype: np.dtype[Any], begins: Numbers, ends: Numbers, *, size: int
) -> NDArray[Any]:
    """Return the values of ascending ranges of a file end to end. The file must hold `size` values."""
    lengths = ends - begins
    into = np.concatenate([np.zeros(1, dtype=np.int64), lengths.cumsum()])
    values = np.empty(int(into[-1]), dtype=dtype)
    first, last = _extents(begins, ends, LARGEST_GAP // dtype.itemsize, BUFFER // dtype.itemsize)
    begin, end = begins[first], ends[last]
    # Where each extent would begin if all were read into one buffer.
    places = np.concatenate([np.zeros(1, dtype=np.int64), (end - begin).cumsum()])
    groups = _groups(places, BUFFER // dtype.itemsize)
    buffer = np.empty(max(int(places[some.stop] - places[some.start]) for some in groups), dtype=dtype)
    with _opened(folder, name, size * dtype.itemsize) as descriptor:
        for some in groups:
            base = places[some.start]
            _read_ahead(descriptor, int(begin[some.start]) * dtype.itemsize, int(end[some.stop - 1]) * dtype.itemsize)
            _fill(descriptor, folder.path / name, buffer, begin[some], places[some.start : some.stop + 1] - base)
            rows = slice(int(first[some.start]), int(last[some.stop - 1]) + 1)
            counts = (last - first + 1)[some]
            shift = np.repeat(places[some.start : some.stop] - base - begin[some], counts) + begins[rows]
            out = slice(int(into[rows.start]), int(into[rows.stop]))
            where = np.repeat(shift - (into[rows.start : rows.stop] - out.start), lengths[rows])
            where += np.arange(out.stop - out.start)
            values[out] = buffer[where]
    return values


def _extents(begins: Numbers, ends: Numbers, gap: int, most: int) -> tuple[Numbers, Numbers]:
    """Return the first and the last range of each extent: ranges with small gaps that begin in the same `most` values."""
    cut = (begins[1:] > ends[:-1] + gap) | (begins[1:] // most != begins[:-1] // most)
    inner = np.flatnonzero(cut)
    return np.concatenate([[0], inner + 1]), np.concatenate([inner, [len(begins) - 1]])


def _groups(places: Numbers, most: int) -> list[slice]:
    """Return slices of the extents that are read into the buffer together."""
    bounds = np.flatnonzero(np.diff(places[:-1] // most)) + 1
    edges = [0, *bounds.tolist(), len(places) - 1]
    return [slice(start, stop) for start, stop in pairwise(edges)]


def _read_ahead(descriptor: int, begin: int, end: int) -> None:
    """Ask the system to read this part of the file ahead, because many small reads from a disk are slow."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, begin, end - begin, os.POSIX_FADV_WILLNEED)


def _fill(descriptor: int, path: Path, buffer: NDArray[Any], begins: Numbers, places: Numbers) -> None:
    """Read the extents that begin at these values of the file to these places of the buffer."""
    view, width = buffer.view(np.uint8).data, buffer.dtype.itemsize
    edges = (places * width).tolist()
    for (start, stop), position in zip(pairwise(edges), (begins * width).tolist(), strict=True):
        while start < stop:
            try:
                count = _read_at(descriptor, view[start:stop], position)
            except OSError as error:
                _damaged(path, f"cannot be read ({error.strerror})")
            if not count:
                _damaged(path, f"ends at byte {position:,}: it was truncated")
            start, position = start + count, position + count


def _read_at(descriptor: int, into: memoryview, position: int) -> int:
    """Read bytes from a position of a file, and return their number."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [into], position)
    # Windows. Each reader has opened the file for itself, so nobody else moves the position.
    os.lseek(descriptor, position, os.SEEK_SET)
    content = os.read(descriptor, len(into))
    into[: len(content)] = content
    return len(content)


@contextmanager
def _opened(folder: Folder, name: str, size: int) -> Iterator[int]:
    """Yield a descriptor of a file, which must have this size."""
    try:
        file = folder.open_file(name)
    except CheckpointError as error:
        raise DataError(f"{error}; restore it, or prepare the store again") from error
    with file:
        found = os.fstat(file.fileno()).st_size
        if found != size:
            _damaged(folder.path / name, f"has {counted(found, 'byte')}, not {size:,}")
        yield file.fileno()


def check_size(folder: Folder, name: str, size: int) -> None:
    """Raise DataError unless the file is there and has this size."""
    with _opened(folder, name, size):
        pass


def _damaged(path: Path, what: str) -> NoReturn:
    raise DataError(f"{path} {what}; restore it, or prepare the store again")

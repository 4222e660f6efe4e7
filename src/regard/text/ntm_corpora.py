"""The tasks of the Neural Turing Machine (Graves et al. 2014, section 4), as lines of binary vectors.

    ntm-copy     00110 01010 10000 . .                        →  0110 1010
    ntm-repeat   00110 01010 10000:2 . . . . .                →  00110 01010 00110 01010 10000
    ntm-recall   100110 000101 100011 001010 010000 ...       →  1010

(with fewer bits than they have). A vector is written as its bits; a step at which an output is wanted, and nothing is read,
as a dot. The first bits are control channels, the others data. Copying ends the sequence with a delimiter, the first
channel. Repeating has the number of repeats behind the delimiter, and asks for an end marker, in the first channel of the
output. Recall has items of a few vectors, each after a delimiter (first channel), then, between two vectors of the second
channel, one of the items again: the item that followed it is wanted.

Rows are made a length at a time, as arrays of characters.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from regard.config import Struct, between

SEEDS = {"train": 11, "valid": 12, "test": 13}
Bytes = NDArray[np.uint8]
Rows = tuple[list[str], list[str]]
MOST_CHARACTERS = 2**28  # of a corpus, which bounds the memory that a recipe can ask for
ZERO, SPACE, DOT = (ord(one) for one in "0 .")


class CopyOptions(Struct, frozen=True):
    """Sequences of random vectors. Defaults are the paper's."""

    count: int = 10_000  # examples
    min_length: int = 1
    max_length: int = 20
    width: int = 8  # data bits of a vector

    def check(self) -> None:
        between(self, 1, 1_000_000, "count")
        between(self, 1, 10_000, "min_length", "max_length")
        between(self, 1, 15, "width")
        if self.min_length > self.max_length:
            raise ValueError(f"min_length is {self.min_length}, above max_length ({self.max_length}); swap them")
        _bounded(self.count, 2 * self.max_length + 2, self.width)


class RepeatOptions(Struct, frozen=True):
    """Sequences of random vectors, and how often to repeat them. Defaults are the paper's."""

    count: int = 10_000
    min_length: int = 1
    max_length: int = 10
    min_repeats: int = 1
    max_repeats: int = 10
    width: int = 8

    def check(self) -> None:
        between(self, 1, 1_000_000, "count")
        between(self, 1, 10_000, "min_length", "max_length")
        between(self, 1, 9999, "min_repeats", "max_repeats")
        between(self, 1, 15, "width")
        for what in ("length", "repeats"):
            least, most = getattr(self, f"min_{what}"), getattr(self, f"max_{what}")
            if least > most:
                raise ValueError(f"min_{what} is {least}, above max_{what} ({most}); swap them")
        _bounded(self.count, self.max_length * (1 + self.max_repeats) + 3, self.width)


class RecallOptions(Struct, frozen=True):
    """Items of some random vectors, and one of them as a query. Defaults are the paper's."""

    count: int = 10_000
    min_items: int = 2
    max_items: int = 6
    vectors: int = 3  # of an item
    width: int = 6

    def check(self) -> None:
        between(self, 1, 1_000_000, "count")
        between(self, 2, 1000, "min_items", "max_items")
        between(self, 1, 100, "vectors")
        between(self, 1, 14, "width")
        if self.min_items > self.max_items:
            raise ValueError(f"min_items is {self.min_items}, above max_items ({self.max_items}); swap them")
        _bounded(self.count, (self.max_items + 1) * (self.vectors + 1) + self.vectors + 2, self.width)


def _bounded(count: int, steps: int, width: int) -> None:
    size = count * steps * (width + 4)
    if size > MOST_CHARACTERS:
        fits = max(1, MOST_CHARACTERS // (steps * (width + 4)))
        raise ValueError(f"count is {count:,}, which makes too much text for such sequences; at most {fits:,} fit")


def generate_copy(split: str, options: CopyOptions, epoch: int) -> list[tuple[str, str]]:
    """Return sequences to copy."""
    random = np.random.default_rng([SEEDS[split], epoch])
    lengths = random.integers(options.min_length, options.max_length, options.count, endpoint=True)

    def rows(examples: int, length: int) -> Rows:
        bits = random.integers(0, 2, (examples, length, options.width), dtype=np.uint8)
        return _lines(_with_control(bits, 1), _marker(examples, 1 + options.width, 0), _dots(examples, length)), _lines(
            bits
        )

    return _in_drawn_order(lengths, rows)


def generate_repeat(split: str, options: RepeatOptions, epoch: int) -> list[tuple[str, str]]:
    """Return sequences to repeat."""
    random = np.random.default_rng([SEEDS[split], epoch])
    lengths = random.integers(options.min_length, options.max_length, options.count, endpoint=True)
    repeats = random.integers(options.min_repeats, options.max_repeats, options.count, endpoint=True)

    def rows(examples: int, kind: int) -> Rows:
        length, times = divmod(kind, 10_000)
        bits = random.integers(0, 2, (examples, length, options.width), dtype=np.uint8)
        width = 1 + options.width
        number = np.frombuffer(f":{times} ".encode(), dtype=np.uint8)
        marker = np.concatenate(
            [_marker(examples, width, 0)[:, :-1], np.broadcast_to(number, (examples, len(number)))], axis=1
        )
        once = _with_control(bits, 1)
        outputs = np.tile(_characters(once), (1, times))
        return _lines(once, marker, _dots(examples, length * times + 1)), _lines(outputs, _marker(examples, width, 0))

    return _in_drawn_order(lengths * 10_000 + repeats, rows)


def generate_recall(split: str, options: RecallOptions, epoch: int) -> list[tuple[str, str]]:
    """Return lists of items with a query, and the item after the one that is asked for."""
    random = np.random.default_rng([SEEDS[split], epoch])
    counts = random.integers(options.min_items, options.max_items, options.count, endpoint=True)

    def rows(examples: int, items: int) -> Rows:
        bits = random.integers(0, 2, (examples, items, options.vectors, options.width), dtype=np.uint8)
        asked = random.integers(0, items - 1, examples)
        every, width = np.arange(examples), 2 + options.width
        data = np.zeros((examples, items, 1 + options.vectors, width), dtype=np.uint8)
        data[:, :, 0, 0] = 1
        data[:, :, 1:, 2:] = bits
        ask = _marker(examples, width, 1)
        query = _with_control(bits[every, asked], 2)
        source = _lines(data.reshape(examples, -1, width), ask, query, ask, _dots(examples, options.vectors))
        return source, _lines(bits[every, asked + 1])

    return _in_drawn_order(counts, rows)


def _in_drawn_order(kinds: NDArray[np.int64], rows: Callable[[int, int], Rows]) -> list[tuple[str, str]]:
    """Return one example per kind. `rows(count, kind)` makes all examples of one kind, whose lines are equally long."""
    pairs: list[tuple[str, str]] = [("", "")] * len(kinds)
    for kind in np.unique(kinds).tolist():
        places = np.flatnonzero(kinds == kind).tolist()
        for place, source, target in zip(places, *rows(len(places), kind), strict=True):
            pairs[place] = (source, target)
    return pairs


def _with_control(bits: Bytes, channels: int) -> Bytes:
    """Return vectors, [examples, vectors, width], with control channels of zeros before their data."""
    return np.pad(bits, ((0, 0), (0, 0), (channels, 0)))


def _characters(bits: Bytes) -> Bytes:
    """Return vectors as characters, each followed by a space: [examples, characters]."""
    return np.pad(bits + ZERO, ((0, 0), (0, 0), (0, 1)), constant_values=SPACE).reshape(len(bits), -1)


def _marker(examples: int, width: int, channel: int) -> Bytes:
    """Return the characters of a vector with one bit."""
    one = np.full(width + 1, ZERO, dtype=np.uint8)
    one[channel], one[-1] = ZERO + 1, SPACE
    return np.broadcast_to(one, (examples, width + 1))


def _dots(examples: int, count: int) -> Bytes:
    return np.tile(np.array([DOT, SPACE], dtype=np.uint8), (examples, count))


def _lines(*parts: Bytes) -> list[str]:
    """Return a line per example: vectors, [examples, vectors, width], or characters, [examples, characters], in order."""
    joined = np.concatenate([_characters(part) if part.ndim == 3 else part for part in parts], axis=1)
    text, length = joined.tobytes().decode("ascii"), joined.shape[1]
    # Without the space behind the last vector.
    return [text[begin : begin + length - 1] for begin in range(0, len(text), length)]

"""Streams of pairs: samples to train tokenizers on, chunks to encode, and work that overlaps with reading."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TypeVar

from regard.text.corpus import Pair

# Limits in characters, over both sides, bound the memory for long sentences.
SAMPLE_PAIRS = 1_000_000
SAMPLE_CHARS = 200_000_000
CHUNK_PAIRS = 2**14
CHUNK_CHARS = 2**23
READ_AHEAD = 2  # chunks that are read while one is encoded

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def spread_sample(
    pairs: Iterator[Pair], progress: Callable[[int], None] = lambda count: None
) -> tuple[list[Pair], int]:
    """Return pairs spread evenly over a stream, and the length of the stream. The sample is always the same.

    `progress` is called with the number of pairs read. When the sample is full, every other pair of it is dropped, and from
    then on half as many pairs are added.
    """
    kept: list[Pair] = []
    count, stride, chars = 0, 1, 0
    for count, pair in enumerate(pairs, start=1):
        if count % stride:
            continue
        kept.append(pair)
        chars += len(pair.source) + len(pair.target)
        while len(kept) > 1 and (len(kept) > SAMPLE_PAIRS or chars > SAMPLE_CHARS):
            kept, stride = kept[1::2], stride * 2
            chars = sum(len(pair.source) + len(pair.target) for pair in kept)
        progress(count)
    return kept, count


def first_sample(pairs: Iterator[Pair]) -> tuple[list[Pair], Iterator[Pair]]:
    """Return the first pairs of a stream that can be read only once, and the complete stream."""
    kept: list[Pair] = []
    chars = 0
    for pair in pairs:
        kept.append(pair)
        chars += len(pair.source) + len(pair.target)
        if len(kept) >= SAMPLE_PAIRS or chars > SAMPLE_CHARS:
            break
    return kept, chain(kept, pairs)


def chunks_of(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Yield the pairs in chunks of at most CHUNK_PAIRS."""
    chunk: list[Pair] = []
    chars = 0
    for pair in pairs:
        chunk.append(pair)
        chars += len(pair.source) + len(pair.target)
        if len(chunk) == CHUNK_PAIRS or chars >= CHUNK_CHARS:
            yield chunk
            chunk, chars = [], 0
    if chunk:
        yield chunk


def map_in_background(work: Callable[[Argument], Result], items: Iterable[Argument]) -> Iterator[Result]:
    """Yield work(item) for each item, in order. A thread works while the next items are read.

    One thread is enough, because SentencePiece uses all cores and, like hashing, releases the interpreter lock.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting: deque[Future[Result]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > READ_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

"""Pairs a chunk at a time: read here, encoded beside it on all cores, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from regard.text.corpus import Pair

CHUNK_PAIRS = 2**14
CHUNK_CHARS = 2**23  # bounds the memory where sentences are long
AHEAD = 2  # chunks read while one is encoded

Item = TypeVar("Item")
Result = TypeVar("Result")


def chunks_of(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """The pairs, some thousands at a time."""
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


def side_by_side(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`work` of each item in order, done in a thread while the next items are read.

    SentencePiece and the hashes let other threads run meanwhile, so that one thread is enough here.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting: deque[Future[Result]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

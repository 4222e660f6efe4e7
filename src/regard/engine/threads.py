"""The number of threads of the engine, and calls of it in parallel."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from regard.cores import usable_cores
from regard.decoding.hypothesis import Check

T = TypeVar("T")
U = TypeVar("U")

MOST_THREADS = 256  # of a session (`session.c`)


def default_threads() -> int:
    """Return the default number of threads of search: OMP_NUM_THREADS, or one per core that it may use."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return min(int(wanted), MOST_THREADS)
    return min(usable_cores(), MOST_THREADS)


def in_threads(call: Callable[[T, int], U], items: Sequence[T], *, threads: int, check: Check) -> list[U]:
    """Return call(item, threads) of all items: of one with all threads, of several with one each, in parallel."""
    found = []
    if len(items) < 2 or threads < 2:
        for item in items:
            check()
            found.append(call(item, threads))
        return found
    with ThreadPoolExecutor(min(len(items), threads)) as pool:
        try:
            for one in pool.map(lambda item: call(item, 1), items):
                check()
                found.append(one)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return found

"""Several batches searched at once on a CPU, a thread each: one step of search is too little work to share among cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

import torch

from regard.data.ragged import Ragged
from regard.decoding.hypotheses import Check, SearchOptions, SearchResults, never_stop
from regard.decoding.non_autoregressive import refine
from regard.decoding.search import search_each
from regard.models.base import Model, NonAutoregressive

MOST_LANES = 8  # Python itself runs in one of them at a time


def search_all(
    model: Model, sources: Sequence[Ragged], *, options: SearchOptions, check: Check = never_stop
) -> Iterator[tuple[int, SearchResults]]:
    """The results of `search_each` for each batch, with the number of the batch, as they become ready.

    `check` is called before every step, by several threads where there are several batches at once.
    """
    find: Callable[..., Iterator[SearchResults]] = _refine_all if model.non_autoregressive else search_each
    threads = torch.get_num_threads()
    lanes = min(threads, MOST_LANES, len(sources))
    on_cpu = next(model.parameters()).device.type == "cpu"
    if lanes < 2 or not on_cpu or torch.is_autocast_enabled("cpu"):
        for number, source in enumerate(sources):
            yield from ((number, found) for found in find(model, source, options=options, check=check))
        return
    heard: SimpleQueue[tuple[int, SearchResults] | Future[None]] = SimpleQueue()

    def search_one(number: int) -> None:
        for found in find(model, sources[number], options=options, check=check):
            heard.put((number, found))

    pool = ThreadPoolExecutor(lanes, "search", initializer=torch.set_num_threads, initargs=(threads // lanes,))
    try:
        # The largest first, so that no lane is still busy with one when the others are done.
        for number in sorted(range(len(sources)), key=lambda number: -sources[number].layout.total):
            pool.submit(search_one, number).add_done_callback(heard.put)
        ended = 0
        while ended < len(sources):
            if isinstance(one := heard.get(), Future):
                one.result()
                ended += 1
            else:
                yield one
    finally:
        pool.shutdown(cancel_futures=True)


def _refine_all(
    model: NonAutoregressive, source: Ragged, *, options: SearchOptions, check: Check
) -> Iterator[SearchResults]:
    yield list(enumerate(refine(model, source, options=options, check=check)))

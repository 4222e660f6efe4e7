"""Several batches searched at once on a CPU, a thread each: one step of search is too little work to share among cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from regard.data.ragged import Ragged
from regard.decoding.hypotheses import Hypothesis, SearchOptions
from regard.decoding.refine import refine
from regard.decoding.search import search
from regard.models.base import Model

MOST_LANES = 8  # Python itself runs in one of them at a time


def search_all(model: Model, sources: Sequence[Ragged], *, options: SearchOptions) -> Iterator[list[list[Hypothesis]]]:
    """The results of `search` for each batch, in order."""
    find: Callable[..., list[list[Hypothesis]]] = refine if model.at_once else search
    threads = torch.get_num_threads()
    lanes = min(threads, MOST_LANES, len(sources))
    on_cpu = next(model.parameters()).device.type == "cpu"
    if lanes < 2 or not on_cpu or torch.is_autocast_enabled("cpu"):
        yield from (find(model, source, options=options) for source in sources)
        return
    pool = ThreadPoolExecutor(lanes, "search", initializer=torch.set_num_threads, initargs=(threads // lanes,))
    try:
        # The largest first, so that no lane is still busy with one when the others are done.
        order = sorted(range(len(sources)), key=lambda number: -sources[number].layout.total)
        found = {number: pool.submit(find, model, sources[number], options=options) for number in order}
        yield from (found.pop(number).result() for number in range(len(sources)))
    finally:
        pool.shutdown(cancel_futures=True)

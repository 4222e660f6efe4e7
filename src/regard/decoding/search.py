"""Search with models of PyTorch: of one batch, of many batches in parallel, and of non-autoregressive models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue

import torch

from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.batch_search import search_batch, stream_sentence
from regard.decoding.constraints import Demands
from regard.decoding.cuda_graph_model import device_search_of
from regard.decoding.device_search import fits as fits_device_search
from regard.decoding.hypothesis import Check, Hypothesis, SearchResults, never_stop, refuse_not_finite
from regard.decoding.torch_scores import TorchStepModel
from regard.models.base import Model, NonAutoregressive, Seq2Seq, WriteOptions
from regard.nn.device import use_device

Pending = Callable[[], SearchResults]
MAX_THREADS = 8  # more do not help: only one of them can run Python at a time


def search(
    model: Seq2Seq,
    source: Ragged,
    *,
    options: SearchOptions,
    demands: Demands | None = None,
    check: Check = never_stop,
) -> list[list[Hypothesis]]:
    """Return the `nbest` best outputs for each source sentence (of text, ending in EOS), best first.

    An output has what its sentence demands. `check` is called before every step.
    """
    results = search_each(model, source, options=options, demands=demands, check=check)
    found = {sentence: best for some in results for sentence, best in refuse_not_finite(some)}
    return [found[sentence] for sentence in range(len(found))]


@torch.inference_mode()
def search_each(
    model: Seq2Seq,
    source: Ragged,
    *,
    options: SearchOptions,
    demands: Demands | None = None,
    check: Check = never_stop,
) -> Iterator[SearchResults]:
    """Yield what `search` returns as sentences finish: each one with beams, a quarter of the batch at a time without.

    On a GPU, finish or abandon a search that needs the host before the next one begins (`decoding.cuda_graph_model`).
    """
    for pending in _pending_each(model, source, options=options, demands=demands, check=check):
        yield pending()


@torch.inference_mode()
def _pending_each(
    model: Seq2Seq,
    source: Ragged,
    *,
    options: SearchOptions,
    demands: Demands | None = None,
    check: Check = never_stop,
) -> Iterator[Pending]:
    """Yield functions that return what `search_each` yields. They may be called when the next search has begun."""
    lengths, options = source.layout.lengths, SearchOptions().with_given(options)
    on_device = device_search_of(model)
    if on_device is not None and fits_device_search(options, demands):
        yield on_device.launch(source, options=options, demands=demands, check=check)
        return
    for results in search_batch(TorchStepModel(model), source, lengths, options=options, demands=demands, check=check):
        yield partial(_known, results)


def _known(results: SearchResults) -> SearchResults:
    return results


@torch.inference_mode()
def stream_greedy(
    model: Seq2Seq,
    source_ids: list[int],
    *,
    options: SearchOptions,
    on_token: Callable[[list[int]], None],
    demands: Demands | None = None,
    check: Check = never_stop,
) -> list[int]:
    """Return the output of greedy search for one source. `on_token` receives the output so far after each token."""
    stepped = TorchStepModel(model)
    source = Ragged.from_lists([source_ids], stepped.device)
    return stream_sentence(
        stepped, source, len(source_ids), options=options, on_token=on_token, demands=demands, check=check
    )


@torch.inference_mode()
def refine(
    model: NonAutoregressive, source: Ragged, *, options: SearchOptions, check: Check = never_stop
) -> list[list[Hypothesis]]:
    """Return the `nbest` best of `beam` candidates for each source sentence, best first.

    `check` is called before every iteration.
    """
    check()
    options = SearchOptions().with_given(options)
    limits = [options.limit(length - 1) for length in source.layout.lengths]
    if model.max_length is not None:
        limits = [min(limit, model.max_length - 1) for limit in limits]
    outputs = model.write(model.encode(source), WriteOptions(limits, options.beam, options.iterations, check))
    return [
        [Hypothesis(one.ids[:limit], one.score) for one in best[: options.nbest]]
        for best, limit in zip(outputs, limits, strict=True)
    ]


def search_all(
    model: Model,
    sources: Sequence[Callable[[], Ragged]],
    *,
    options: SearchOptions,
    demands: Sequence[Demands | None] = (),
    check: Check = never_stop,
) -> Iterator[tuple[int, SearchResults]]:
    """Yield the results of each batch, with the index of the batch, as they become ready; for either kind of model.

    Each function makes the source of one batch when its search begins. `demands` are those of each batch, for models
    that search. Give the largest batches first, so that no thread is still busy with one when the others are done.

    On a CPU several batches are searched at once, one thread each: one step is too little work to share between cores.
    On a GPU that searches by itself a thread begins the next batch while the caller handles the results of the last one.
    `check` is called before every step, then by these threads.
    """
    for number, results in _search_all(model, sources, options, demands, check):
        yield number, refuse_not_finite(results)


def _search_all(
    model: Model,
    sources: Sequence[Callable[[], Ragged]],
    options: SearchOptions,
    demands: Sequence[Demands | None],
    check: Check,
) -> Iterator[tuple[int, SearchResults]]:
    find_each: Callable[..., Iterator[Pending]] = _refine_each if model.non_autoregressive else _pending_each

    def find(number: int) -> Iterator[Pending]:
        more = {"demands": demands[number]} if demands else {}
        return find_each(model, sources[number](), options=options, check=check, **more)

    workers = _num_workers(model, len(sources))
    if workers == 0:
        for number in range(len(sources)):
            yield from ((number, pending()) for pending in find(number))
        return
    events: SimpleQueue[tuple[int, Pending] | Future[None]] = SimpleQueue()

    def search_one(number: int) -> None:
        for pending in find(number):
            events.put((number, pending))

    device, threads = next(model.parameters()).device, torch.get_num_threads() // workers
    pool = ThreadPoolExecutor(workers, "search", initializer=_prepare_thread, initargs=(device, threads))
    try:
        for number in range(len(sources)):
            pool.submit(search_one, number).add_done_callback(events.put)
        ended = 0
        while ended < len(sources):
            if isinstance(event := events.get(), Future):
                event.result()
                ended += 1
            else:
                number, pending = event
                yield number, pending()
    finally:
        pool.shutdown(cancel_futures=True)


def _num_workers(model: Model, batches: int) -> int:
    """Return how many threads search; 0: the caller's own."""
    if next(model.parameters()).device.type == "cuda":
        return 1 if batches > 1 and isinstance(model, Seq2Seq) and device_search_of(model) is not None else 0
    workers = min(torch.get_num_threads(), MAX_THREADS, batches)
    return 0 if workers < 2 or torch.is_autocast_enabled("cpu") else workers


def _prepare_thread(device: torch.device, threads: int) -> None:
    torch.set_num_threads(threads)
    use_device(device)


def _refine_each(
    model: NonAutoregressive, source: Ragged, *, options: SearchOptions, check: Check
) -> Iterator[Pending]:
    yield partial(_known, list(enumerate(refine(model, source, options=options, check=check))))

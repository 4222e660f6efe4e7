"""Greedy and beam search on the device alone: the host launches steps, and reads how many sentences are not finished.

For the options that most searches have: no constraints, samples, groups, or rules about repetition. The results are those
of `decoding.beam_search` and `decoding.row_search`. On a GPU a step is a CUDA graph: the decoder (`nn.decoder_pool`), the
choice of candidates, and what becomes of finished hypotheses (`kernels.beam_step`). Without a GPU the same runs step by
step, slowly, for tests (`decoding.plain_beam_step`). The tensors are those of `decoding.search_tensors`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from regard import kernels
from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.batch_search import output_limits
from regard.decoding.constraints import Demands
from regard.decoding.hypothesis import Check, SearchResults
from regard.decoding.repetition import forbids_repetition
from regard.decoding.search_tensors import MAX_POSITIONS, Room, SearchTensors, round_up
from regard.models.base import StaticSeq2Seq

FIRST_STEPS = 256  # most steps that a search has room for at first; doubled when they are used up
STEP_MULTIPLE = 32
MAX_BEAMS = 16  # with more, the kernel would need too much memory for a sentence's candidates
SMALLER = 0.5  # sentences continue in a graph for fewer rows once it has at most this share of the rows
MAX_KINDS = 2  # beam sizes whose tensors are kept
MAX_GRAPHS = 64  # that are kept; the least recently used is dropped first


def fits(options: SearchOptions, demands: Demands | None) -> bool:
    """Return whether this search supports the options and what the outputs must have."""
    free = demands is None or (demands.vocabularies is None and not any(demands.automata))
    plain = not options.sample and options.beam_groups == 1 and not forbids_repetition(options)
    return free and plain and options.beam <= MAX_BEAMS


class DeviceSearch:
    """Searches of one model. Threads may share it: a search begins when the host has launched the one before it."""

    def __init__(self, model: StaticSeq2Seq[Any, Any]) -> None:
        self.model = model
        self.by_beams: OrderedDict[int, SearchTensors] = OrderedDict()
        self.graphs: OrderedDict[tuple[str, int, int], torch.cuda.CUDAGraph] = OrderedDict()
        self.memory_pool: Any = None  # of the tensors inside graphs: only one graph runs at a time
        self._lock = threading.Lock()  # held by the search that uses the tensors and graphs
        on_gpu = next(model.parameters()).device.type == "cuda"
        self._launched = torch.cuda.Event() if on_gpu else None  # all of the last search, for other streams

    def launch(
        self, source: Ragged, *, options: SearchOptions, demands: Demands | None, check: Check
    ) -> Callable[[], SearchResults]:
        """Search, and return a function that returns the best hypotheses of all sentences, as soon as they have arrived.

        `check` is called before every step. The next search can begin before the function is called.
        """
        limits = output_limits(source.layout.lengths, options, demands, self.model.max_length)
        never = self.model.never if demands is None else (*self.model.never, *demands.never)
        with self._owned():
            check()
            search = self._tensors(source, limits, options)
            search.load(source, limits, options, never)
            self._encode(search, source)
            search = self._run(search, limits, check)
            return search.fetch(len(limits), options)

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """Let other threads wait until this search is launched, and other streams until it has ended."""
        with self._lock:
            if self._launched is None:
                yield
                return
            torch.cuda.current_stream().wait_event(self._launched)
            try:
                yield
            finally:
                self._launched.record()

    def _run(self, search: SearchTensors, limits: Sequence[int], check: Check) -> SearchTensors:
        """Launch steps until no sentence remains, and return the tensors that have the results."""
        groups = round_up(len(limits))
        for step in range(max(limits)):
            check()
            if step == search.pool.steps:
                search = self._with_more_steps(search, len(limits))
            remaining = search.remaining()
            if remaining == 0:
                break
            # Powers of two, so that few graphs are recorded for this.
            if remaining is not None and (fewer := 1 << (remaining - 1).bit_length()) <= SMALLER * groups:
                groups = fewer
                search.drop_finished()
            self._replay("step", search, groups, search.step)
            search.count_step()
        return search

    def _tensors(self, source: Ragged, limits: Sequence[int], options: SearchOptions) -> SearchTensors:
        """Return tensors with enough room, those of earlier searches if possible."""
        beams, longest, sentences = options.beam, max(limits), round_up(len(limits))
        steps = min(-(-longest // STEP_MULTIPLE) * STEP_MULTIPLE, FIRST_STEPS)
        wanted = Room.for_search(sentences, sentences * beams * steps, round_up(source.layout.total))
        found = self.by_beams.get(beams)
        if found is None or not found.room.holds(wanted) or longest > found.max_positions:
            most = max(MAX_POSITIONS, longest)
            if found is not None:
                wanted, most = wanted.with_room_for(found.room), max(most, found.max_positions)
            self._drop(beams)
            del found
            found = SearchTensors(self.model, wanted, beams=beams, max_positions=most)
            self.by_beams[beams] = found
            if len(self.by_beams) > MAX_KINDS:
                self._drop(next(iter(self.by_beams)))
        self.by_beams.move_to_end(beams)
        found.pool.steps = steps
        return found

    def _drop(self, beams: int) -> None:
        """Drop the tensors for so many beams, and the graphs that use them."""
        if self._launched is not None:
            # The memory returns to the stream that it was allocated in, which may be another one.
            torch.cuda.current_stream().synchronize()
        self.by_beams.pop(beams, None)
        for key in [key for key in self.graphs if key[1] == beams]:
            del self.graphs[key]
        if not self.graphs:
            self.memory_pool = None  # it is gone with its last graph

    def _with_more_steps(self, search: SearchTensors, sentences: int) -> SearchTensors:
        """Return tensors with room for twice as many steps, in which the search continues."""
        steps = 2 * search.pool.steps
        room = search.room._replace(slots=max(search.room.slots, round_up(sentences) * search.beams * steps))
        self._drop(search.beams)
        larger = SearchTensors(self.model, room, beams=search.beams, max_positions=search.max_positions)
        larger.take_over(search, steps)
        self.by_beams[search.beams] = larger
        return larger

    def _encode(self, search: SearchTensors, source: Ragged) -> None:
        """Compute the keys and values of the source."""
        half = search.pool.shape.dtype in (torch.bfloat16, torch.float16)
        recordable = self.model.static_shapes and half and kernels.usable(search.pool.memory)
        if recordable and source.layout.longest <= search.source_positions:
            self._replay("encode", search, round_up(source.layout.total), search.encode_static)
        else:
            search.encode(source)

    def _replay(self, name: str, search: SearchTensors, size: int, run: Any) -> None:
        """Replay what `run(size)` does, or run it where there are no graphs."""
        if search.device.type != "cuda":
            run(size)
            return
        key = (name, search.beams, size)
        if key not in self.graphs:
            self.graphs[key] = self._record(search, size, run)
            if len(self.graphs) > MAX_GRAPHS:
                self.graphs.popitem(last=False)
        self.graphs.move_to_end(key)
        self.graphs[key].replay()

    def _record(self, search: SearchTensors, size: int, run: Any) -> torch.cuda.CUDAGraph:
        """Return the graph of `run(size)`. It runs once before, so that libraries initialize themselves."""
        saved = [one.clone() for one in search.changing]
        run(size)
        for one, before in zip(search.changing, saved, strict=True):
            one.copy_(before)
        if self.memory_pool is None:
            self.memory_pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.memory_pool, capture_error_mode="thread_local"):
            run(size)
        return graph

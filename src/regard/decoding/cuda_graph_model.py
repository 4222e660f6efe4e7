"""Steps of search captured as CUDA graphs and replayed, so that a step costs GPU time and not Python time.

Search uses a `CudaGraphModel` like any other model. Sizes are rounded up, so that few graphs serve all batches; rows that
are not needed are computed and ignored. A graph has one set of tensors, so only one search at a time can use it.

Shapes: B sentences, Q beams, R = B * Q rows, V vocabulary.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, NamedTuple

import torch
from torch import Tensor

from regard import kernels
from regard.data.ragged import Ragged
from regard.decoding.device_search import DeviceSearch
from regard.models.base import Growing, Seq2Seq, Static, StaticSeq2Seq, TextSeq2Seq

MAX_ROWS = 1024  # with more rows a step keeps the GPU busy without a graph
MAX_GRAPHS = 64  # graphs that are kept; the least recently used is dropped first
FIRST_STEPS = 32  # steps that a search has room for at first; doubled when they are used up
SLOT_MULTIPLE = 16  # source slots are rounded up to a multiple of this
WARM_UP_STEPS = 2  # steps before the capture, in which libraries initialize themselves


def with_cuda_graphs(model: Seq2Seq) -> Seq2Seq:
    """Return the model with its steps captured as CUDA graphs, or the model itself where that is not possible."""
    on_gpu = next(model.parameters()).device.type == "cuda"
    if on_gpu and isinstance(model, StaticSeq2Seq) and model.has_static_state:
        return CudaGraphModel(model)
    return model


def device_search_of(model: Seq2Seq) -> DeviceSearch | None:
    """Return the search on the device of a model that has one."""
    return model.device_search if isinstance(model, CudaGraphModel) else None


class GraphSize(NamedTuple):
    """What a graph has room for."""

    sentences: int
    beams: int
    slots: int
    steps: int


class StepGraph(Generic[Growing, Static]):
    """A captured step for one size, with tensors of its own. Without a GPU the step is run instead of replayed."""

    def __init__(
        self, model: StaticSeq2Seq[Growing, Static], state: Static, size: GraphSize, device: torch.device
    ) -> None:
        self.model, self.state, self.rows = model, state, size.sentences * size.beams
        self.tokens = torch.zeros(self.rows, dtype=torch.int64, device=device)
        self.logits: Tensor | None = None
        self.searches = 0  # that have used this graph; the last of them owns its tensors
        self.graph: torch.cuda.CUDAGraph | None = None
        for _ in range(WARM_UP_STEPS):
            model.step(self.tokens, state)
        if device.type == "cuda":
            self._record()

    def _record(self) -> None:
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.logits = self.model.step(self.tokens, self.state)

    def replay(self, tokens: Tensor) -> Tensor:
        """Return the logits after these tokens, one per row that is in use: [R, V]."""
        self.tokens[: tokens.numel()] = tokens
        if self.graph is None:
            self.logits = self.model.step(self.tokens, self.state)
        else:
            self.graph.replay()
        assert self.logits is not None
        return self.logits[: tokens.numel()]


@dataclass
class GraphState(Generic[Growing, Static]):
    """The graph that a search replays, and how far the search is."""

    graph: StepGraph[Growing, Static]
    size: GraphSize
    sentences: int
    search: int  # its number among the searches of the graph
    expanded: bool  # search has all beams after the first step; the graph always has them
    length: int = 0

    def check(self) -> None:
        assert self.search == self.graph.searches, "another search has taken over this CUDA graph; finish one first"

    def expand_beams(self) -> None:
        self.expanded = True

    def reorder(self, rows: Tensor) -> None:
        self.check()
        beams = self.size.beams
        spare = torch.arange(beams, device=rows.device).repeat((self.graph.rows - rows.numel()) // beams)
        sentences, before = rows.numel() // beams, self.sentences
        self.sentences = sentences
        self.graph.state.reorder(torch.cat([rows, spare]), dropped=sentences < before)


class CudaGraphModel(TextSeq2Seq, Generic[Growing, Static]):
    """A model for search whose steps are replayed from CUDA graphs."""

    def __init__(self, model: StaticSeq2Seq[Growing, Static]) -> None:
        super().__init__()
        self.model = model
        self.width, self.max_length = model.width, model.max_length
        self.bos, self.eos, self.never = model.bos, model.eos, model.never
        self.reads_source_eos = model.reads_source_eos
        self._graphs: OrderedDict[GraphSize, StepGraph[Growing, Static]] = OrderedDict()
        weight = next(model.parameters())
        # For searches with common options; on a GPU its kernels are needed.
        self.device_search = DeviceSearch(model) if kernels.usable(weight) or not weight.is_cuda else None

    @property
    def members(self) -> tuple[Seq2Seq, ...]:
        return self.model.members

    def encode(self, source: Ragged) -> object:
        return self.model.encode(source)

    def hidden(self, target: Ragged, memory: object) -> Tensor:
        return self.model.hidden(target, memory)

    def project(self, hidden: Tensor) -> Tensor:
        return self.model.project(hidden)

    def start(self, memory: object, *, beams: int) -> Growing | GraphState[Growing, Static]:
        """Return a state that replays a graph or, for many rows, the model's own state."""
        plain = self.model.start(memory, beams=beams)
        sentences, slots = plain.num_sentences, plain.num_slots
        if sentences * beams > MAX_ROWS:
            return plain
        rounded = 1 << (sentences - 1).bit_length()
        size = GraphSize(rounded, beams, -(-slots // SLOT_MULTIPLE) * SLOT_MULTIPLE, FIRST_STEPS)
        graph = self._graph(size, plain)
        graph.state.load(plain)
        graph.searches += 1
        return GraphState(graph, size, sentences, graph.searches, expanded=beams == 1)

    def step(self, tokens: Tensor, state: Growing | GraphState[Growing, Static]) -> Tensor:
        if not isinstance(state, GraphState):
            return self.model.step(tokens, state)
        state.check()
        if state.length == state.size.steps:
            self._make_room(state)
        state.length += 1
        if state.expanded:
            return state.graph.replay(tokens)
        beams = state.size.beams
        return state.graph.replay(tokens.repeat_interleave(beams))[::beams]

    def _graph(self, size: GraphSize, like: Growing | Static) -> StepGraph[Growing, Static]:
        """Return the graph for a size, captured now if there is none."""
        if size not in self._graphs:
            state = self.model.static_state(like, sentences=size.sentences, slots=size.slots, steps=size.steps)
            device = next(self.model.parameters()).device
            self._graphs[size] = StepGraph(self.model, state, size, device)
            if len(self._graphs) > MAX_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(size)
        return self._graphs[size]

    def _make_room(self, state: GraphState[Growing, Static]) -> None:
        """Continue with a graph that has room for twice as many steps."""
        steps = state.size.steps
        state.size = state.size._replace(steps=2 * steps)
        larger = self._graph(state.size, state.graph.state)
        larger.state.take_over(state.graph.state, steps)
        larger.searches += 1
        state.graph, state.search = larger, larger.searches

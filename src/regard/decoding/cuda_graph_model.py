"""Steps of search recorded once as a CUDA graph and played again, so that a step costs what the GPU needs and not Python.

For search, a `CudaGraphModel` is the model. Shapes are rounded up, so that few graphs serve all sentences; rows that do
not exist are computed and dropped. One search at a time: a graph has one memory.

Shapes: B sentences, Q beams, R = B * Q rows, V vocabulary.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.data.ragged import Ragged
from regard.models.base import Seq2Seq

MOST_ROWS = 1024  # for more the GPU has enough to do in a step
MOST_RECORDINGS = 64  # that are kept; the one not played for longest goes first
FIRST_STEPS = 32  # that there is room for; then twice as many
SLOTS = 16  # source tokens are rounded up to a multiple
WARM_UP = 2  # steps before a recording: libraries set themselves up in them

Size = tuple[int, int, int, int]  # sentences, beams, slots, steps


def with_cuda_graphs(model: Seq2Seq) -> Seq2Seq:
    """The model, its steps to be recorded where they can be."""
    on_gpu = next(model.parameters()).device.type == "cuda"
    return CudaGraphModel(model) if on_gpu and model.has_static_state else model


class StepGraph:
    """A step for one size, in tensors of its own; without a GPU the step itself."""

    def __init__(self, model: Seq2Seq, state: Any, rows: int, device: torch.device) -> None:
        self.model, self.state, self.rows = model, state, rows
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)
        self.logits: Tensor | None = None
        self.turn = 0  # the search that has its memory now, by number
        self.graph: torch.cuda.CUDAGraph | None = None
        for _ in range(WARM_UP):
            model.step(self.tokens, state)
        if device.type == "cuda":
            self._record()

    def _record(self) -> None:
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.logits = self.model.step(self.tokens, self.state)

    def play(self, tokens: Tensor) -> Tensor:
        """Logits after these tokens, one a row, of the rows that there are: [R, V]."""
        self.tokens[: tokens.numel()] = tokens
        if self.graph is None:
            self.logits = self.model.step(self.tokens, self.state)
        else:
            self.graph.replay()
        assert self.logits is not None
        return self.logits[: tokens.numel()]


@dataclass
class GraphState:
    """Which recording a search plays, and how far it is."""

    recording: StepGraph
    size: Size
    sentences: int
    turn: int
    length: int = 0
    widened: bool = False  # search has all beams after the first step; the recording, always

    def check(self) -> None:
        assert self.turn == self.recording.turn, "another search has begun with this recording; end one first"

    def expand_beams(self) -> None:
        self.widened = True

    def reorder(self, rows: Tensor) -> None:
        self.check()
        beams = self.size[1]
        fill = torch.arange(beams, device=rows.device).repeat((self.recording.rows - rows.numel()) // beams)
        sentences, before = rows.numel() // beams, self.sentences
        self.sentences = sentences
        self.recording.state.reorder(torch.cat([rows, fill]), dropped=sentences < before)


class CudaGraphModel(Seq2Seq):
    """A model whose steps are recorded, for search."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model: Any = model  # one that has a fixed state
        self.width, self.max_length = model.width, model.max_length
        self.bos, self.eos, self.never = model.bos, model.eos, model.never
        self._recordings: OrderedDict[Size, StepGraph] = OrderedDict()

    def encode(self, source: Ragged) -> Any:
        return self.model.encode(source)

    def hidden(self, target: Ragged, memory: Any) -> Tensor:
        return self.model.hidden(target, memory)

    def project(self, hidden: Tensor) -> Tensor:
        return self.model.project(hidden)

    def start(self, memory: Any, *, beams: int) -> Any:
        """A state that plays a recording, or for many rows the model's own."""
        plain: Any = self.model.start(memory, beams=beams)
        sentences, slots = plain.num_sentences, plain.memory_bias.size(-1)
        if sentences * beams > MOST_ROWS:
            return plain
        size = (1 << (sentences - 1).bit_length(), beams, -(-slots // SLOTS) * SLOTS, FIRST_STEPS)
        recording = self._recording(size, plain)
        recording.state.load(plain)
        recording.turn += 1
        return GraphState(recording, size, sentences, recording.turn, widened=beams == 1)

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        if not isinstance(state, GraphState):
            return self.model.step(tokens, state)
        state.check()
        if state.length == state.size[3]:
            self._make_room(state)
        state.length += 1
        if state.widened:
            return state.recording.play(tokens)
        beams = state.size[1]
        return state.recording.play(tokens.repeat_interleave(beams))[::beams]

    def _recording(self, size: Size, like: Any) -> StepGraph:
        """The recording for a size, made now if there is none."""
        if size not in self._recordings:
            sentences, beams, slots, steps = size
            state = self.model.static_state(like, sentences=sentences, slots=slots, steps=steps)
            device = next(self.model.parameters()).device
            self._recordings[size] = StepGraph(self.model, state, sentences * beams, device)
            if len(self._recordings) > MOST_RECORDINGS:
                self._recordings.popitem(last=False)
        self._recordings.move_to_end(size)
        return self._recordings[size]

    def _make_room(self, state: GraphState) -> None:
        """Goes on in a recording with room for twice as many steps."""
        sentences, beams, slots, steps = state.size
        state.size = (sentences, beams, slots, 2 * steps)
        larger = self._recording(state.size, state.recording.state)
        larger.state.take_over(state.recording.state, steps)
        larger.turn += 1
        state.recording, state.turn = larger, larger.turn

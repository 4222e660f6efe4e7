"""The pointer network of Vinyals et al. 2015: an LSTM reads the elements, and another one points at them.

The decoder reads the element that it pointed at last. The score of element j for a decoder state d is v·tanh(W1 e_j + W2 d),
where e_j is the encoder's output; the end has a learned key in place of W1 e_j. No step reads a score, so all steps of a
known output are one call of cuDNN. The decoder starts from the encoder's last output through a layer of its own, since a
layout of static shape gives no cell state at the end of each sentence; the paper takes over the encoder's state.

Shapes: N target tokens, M source tokens, D width of a state, E of an element's vector, B sentences, T longest target,
        Q beams, R = B * Q rows, V columns of the scores; states as in `nn.recurrent`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import MAX_LAYERS, MAX_WIDTH, Struct, below_one, between
from regard.data.ragged import Ragged
from regard.models.base import make_config
from regard.models.pointer import MAX_FREQUENCIES, Outputs, PointingModel, Visited, missing_columns
from regard.nn.dropout import Dropout
from regard.nn.linear import Linear
from regard.nn.recurrent import Recurrent, ends_of, steps_of


class PointerLstmConfig(Struct, frozen=True):
    """Defaults are the paper's larger model: one layer of LSTM."""

    width: int = 256  # of the vector of an element
    hidden: int = 512  # width of the states
    num_layers: int = 1
    dropout: float = 0.0  # on the vectors of elements, and between layers
    outputs: Outputs = "any"
    frequencies: int = 0  # of sin and cos of numbers of the input

    def check(self) -> None:
        between(self, 1, MAX_WIDTH, "width", "hidden")
        between(self, 1, MAX_LAYERS, "num_layers")
        between(self, 0, MAX_FREQUENCIES, "frequencies")
        below_one(self, "dropout")


@dataclass(frozen=True)
class PointerMemory:
    """What the decoder reads of a source."""

    elements: Ragged  # their vectors: [M, E]
    encoded: Tensor  # the encoder's outputs: [M, D]


@dataclass
class PointerLstmState:
    """What the decoder keeps of the rows that search extends, and per sentence the inputs and keys of every output."""

    cells: Tensor  # [L, P, R, D]
    inputs: Tensor  # what the decoder reads after each output: [B, V, E]
    keys: Tensor  # [B, V, D]
    visited: Visited
    max_beams: int  # after `expand_beams`
    beams: int = 1

    def expand_beams(self) -> None:
        self.beams = self.max_beams
        self.cells = self.cells.repeat_interleave(self.beams, dim=2)

    def reorder(self, rows: Tensor) -> None:
        self.cells = self.cells.index_select(2, rows)
        self.visited.reorder(rows, self.beams)
        sentences = rows.view(-1, self.beams)[:, 0] // self.beams
        self.inputs, self.keys = self.inputs.index_select(0, sentences), self.keys.index_select(0, sentences)


class PointerLstm(PointingModel):
    """A recurrent encoder, and a recurrent decoder that points at its outputs."""

    similar_lengths = True
    packs_float32 = True  # points need the digits that bfloat16 lacks

    def __init__(
        self, config: PointerLstmConfig | None = None, *, source_size: int = 0, input_width: int = 0, **options: Any
    ) -> None:
        config = make_config(PointerLstmConfig, config, options)
        sizes = {"source_size": source_size, "input_width": input_width}
        super().__init__(config.width, config.outputs, config.frequencies, **sizes)
        self.config = config
        E, D, depth = config.width, config.hidden, config.num_layers
        self._make_ends(D)
        self.dropout = Dropout(config.dropout, self.noise)
        self.encoder = Recurrent("lstm", E, D, depth, dropout=config.dropout, noise=self.noise)
        self.decoder = Recurrent("lstm", E, D, depth, dropout=config.dropout, noise=self.noise)
        self.bridge = Linear(D, [D] * (2 * depth), bias=True)
        self.key = Linear(D, [D], bias=False)  # W1
        self.query = Linear(D, [D], bias=True)  # W2
        self.v = nn.Parameter(torch.empty(D).normal_(std=D**-0.5))

    @property
    def static_shapes(self) -> bool:
        return True

    def encode(self, source: Ragged) -> PointerMemory:
        x_ME = self.dropout(self.embed(source))
        return PointerMemory(Ragged(x_ME, source.layout), self.encoder(x_ME, steps_of(source.layout)))

    def _first_state(self, memory: PointerMemory) -> Tensor:
        """Return the state that the decoder starts with: [L, 2, B, D]."""
        last_BD = ends_of(memory.encoded, memory.elements.layout, bidirectional=False)
        parts = torch.tanh(self.bridge(last_BD)).view(-1, self.config.num_layers, 2, self.config.hidden)
        return parts.permute(1, 2, 0, 3).contiguous()

    def _keys(self, memory: PointerMemory) -> Tensor:
        """Return the keys of the end and of every position: [B, V, D]."""
        keys_BSD = memory.elements.layout.pad(self.key(memory.encoded))
        end_B1D = self.end_vector.to(keys_BSD.dtype).expand(keys_BSD.size(0), 1, -1)
        return torch.cat([end_B1D, keys_BSD], dim=1)

    def _scores(self, states_BQD: Tensor, keys_BVD: Tensor) -> Tensor:
        q_BQD = self.query(states_BQD.flatten(0, 1)).unflatten(0, states_BQD.shape[:2])
        return torch.tanh(q_BQD[:, :, None] + keys_BVD[:, None]) @ self.v.to(keys_BVD.dtype)

    # All steps at once

    def hidden(self, target: Ragged, memory: PointerMemory) -> Tensor:
        """Return the decoder's states, padded: [B, T, D]."""
        x_NE = self.read(target, memory.elements.values, memory.elements.layout)
        return self.decoder.onwards(target.layout.pad(x_NE), self._first_state(memory))

    def decode(self, target: Ragged, memory: PointerMemory) -> Tensor:
        scores_BTV = self._scores(self.hidden(target, memory), self._keys(memory))
        return self.mask_scores(scores_BTV, target, memory.elements.layout)

    # One token at a time

    def start(self, memory: PointerMemory, *, beams: int) -> PointerLstmState:
        layout, read_BSE = memory.elements.layout, memory.elements.layout.pad(memory.elements.values)
        start_B1E = self.start_vector.to(read_BSE.dtype).expand(read_BSE.size(0), 1, -1)
        inputs, visited = torch.cat([start_B1E, read_BSE], dim=1), Visited(self.outputs, missing_columns(layout))
        return PointerLstmState(self._first_state(memory), inputs, self._keys(memory), visited, beams)

    def step(self, tokens: Tensor, state: PointerLstmState) -> Tensor:
        rows_BQ = tokens.view(-1, state.beams)
        state.visited.add(rows_BQ)
        x_BQE = state.inputs.gather(1, rows_BQ[:, :, None].expand(-1, -1, self.width))
        s_RD, state.cells = self.decoder.step(x_BQE.flatten(0, 1), state.cells)
        scores_BQV = self._scores(s_RD.unflatten(0, (-1, state.beams)), state.keys)
        return state.visited.mask(scores_BQV).flatten(0, 1)

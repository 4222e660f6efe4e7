"""Recurrent encoder-decoders, which the paper compares itself with: from a single vector to attention.

none       one vector for the whole source, an input of every step (Cho et al. 2014)
additive   the state *before* a step attends to the source, and the step reads the result (Bahdanau et al. 2015)
dot, general, concat
           the state *after* a step attends (Luong et al. 2015); with `input_feeding` the next step reads the result

Where a step needs only the state of the step before it, a whole sentence is one call of cuDNN; otherwise it is a loop.

Shapes: N target tokens, M source tokens, D width of a state, A of the encoder's output, E of embeddings, B sentences,
        S the longest source, Q beams, R = B * Q rows; states as in `nn.recurrent`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.config import MAX_LAYERS, MAX_POSITIONS, MAX_WIDTH, Struct, below_one, between
from regard.config.transformer import Tie
from regard.data.ragged import Layout, Ragged
from regard.models.base import make_config
from regard.models.copying import CopyingSeq2Seq
from regard.models.tied_embeddings import TiedEmbeddings
from regard.nn.alignment import Alignment, Annotations
from regard.nn.copying import CopySource, CopyState
from regard.nn.dropout import Dropout
from regard.nn.linear import Linear
from regard.nn.recurrent import CellKind, Rectangle, Recurrent, TimeOrder, ends_of, steps_of, top

Attention = Literal["none", "additive", "dot", "general", "concat"]


class RnnConfig(Struct, frozen=True):
    """Defaults are near those of RNNsearch (Bahdanau et al. 2015): one layer of GRU."""

    width: int = 620  # of embeddings, and of the output layer's input
    hidden: int = 1000  # width of the decoder's state
    encoder_hidden: int | None = None  # of the encoder's output, both directions together; hidden if unset
    bidirectional: bool = True  # of the encoder
    num_layers: int = 1  # of the encoder, and of the decoder
    cell: CellKind = "gru"  # of the recurrent layers
    attention: Attention = "additive"  # how states and annotations are compared
    window: int | None = None  # positions attended to on each side of a predicted one (local-p); None: all
    input_feeding: bool = True  # for dot, general and concat
    dropout: float = 0.0  # on embeddings, between layers, and on the output layer's input
    tie: Tie = "none"  # which embeddings share weights
    copy: bool = False  # whether tokens of the source can be copied to the output (`models.copying`)

    def check(self) -> None:
        between(self, 1, MAX_WIDTH, "width")
        between(self, 1, MAX_LAYERS, "num_layers")
        between(self, 2, MAX_WIDTH, "hidden", "encoder_hidden")
        between(self, 0, MAX_POSITIONS, "window")
        below_one(self, "dropout")
        if self.bidirectional and self.annotation % 2:
            raise ValueError(f"the encoder's hidden is {self.annotation}; it must be even, for its two directions")
        if self.attention == "dot" and self.annotation != self.hidden:
            raise ValueError("attention is 'dot', which needs encoder_hidden to be hidden; leave it unset")
        if self.attention == "none" and self.window is not None:
            raise ValueError("window is set but attention is 'none'; set one of them otherwise")

    @property
    def annotation(self) -> int:
        """Width of the encoder's output, which the decoder attends to."""
        return self.hidden if self.encoder_hidden is None else self.encoder_hidden

    @property
    def feeds(self) -> Literal["context", "readout", "summary", "nothing"]:
        """What a step reads in addition to the last token."""
        if self.attention == "none":
            return "summary"
        if self.attention == "additive":
            return "context"
        return "readout" if self.input_feeding else "nothing"


PRESETS: dict[str, dict[str, object]] = {
    "bahdanau": {"encoder_hidden": 2000},
    "luong": {
        "width": 1000,
        "hidden": 1000,
        "num_layers": 4,
        "cell": "lstm",
        "bidirectional": False,
        "attention": "general",
        "window": 10,
        "dropout": 0.2,
    },
    "cho": {"width": 100, "attention": "none", "bidirectional": False},
    "tiny": {"width": 256, "hidden": 512, "cell": "lstm", "dropout": 0.3, "tie": "all"},
}


@dataclass(frozen=True)
class RnnMemory:
    """What the decoder reads of a source."""

    source: Ragged  # annotations: [M, A]
    summary: Tensor  # the encoder's last state: [B, A]
    ids: Tensor  # of the source: [M]


@dataclass
class RnnState:
    """What the decoder keeps of the rows that search extends."""

    cells: Tensor  # [L, P, R, D]
    fed: Tensor  # what the next step reads in addition to the last token: [R, A] or [R, E]
    annotations: Annotations | None
    max_beams: int  # after `expand_beams`
    beams: int = 1
    copied: CopyState | None = None

    def expand_beams(self) -> None:
        self.beams = self.max_beams
        self.cells = self.cells.repeat_interleave(self.beams, dim=2)
        self.fed = self.fed.repeat_interleave(self.beams, dim=0)

    def reorder(self, rows: Tensor) -> None:
        self.cells, self.fed = self.cells.index_select(2, rows), self.fed.index_select(0, rows)
        sentences = rows.view(-1, self.beams)[:, 0] // self.beams
        if self.annotations is not None:
            self.annotations = self.annotations.of(sentences)
        if self.copied is not None:
            self.copied = self.copied.of(sentences)


class Rnn(TiedEmbeddings, CopyingSeq2Seq):
    """A recurrent encoder and a recurrent decoder, with or without attention between them."""

    similar_lengths = True

    def __init__(self, config: RnnConfig | None = None, *, source_size: int, target_size: int, **options: Any) -> None:
        config = make_config(RnnConfig, config, options)
        super().__init__(config.width, config.tie, source_size=source_size, target_size=target_size)
        self.config = config
        E, D, A = config.width, config.hidden, config.annotation
        self.dropout = Dropout(config.dropout, self.noise)
        options = {"dropout": config.dropout, "noise": self.noise}
        both = config.bidirectional
        self.encoder = Recurrent(config.cell, E, A, config.num_layers, **options, bidirectional=both)
        fed = {"context": A, "readout": E, "summary": A, "nothing": 0}[config.feeds]
        self.decoder = Recurrent(config.cell, E + fed, D, config.num_layers, **options)
        self.bridge = Linear(A, [D] * (config.num_layers * self.decoder.num_parts), bias=True)
        attends = config.attention != "none"
        self.alignment = Alignment(config.attention, D, A, window=config.window) if attends else None  # type: ignore[arg-type]
        # Bahdanau's readout reads the last token too; Luong's reads the state and the context only.
        self.reads_token = config.attention in ("none", "additive")
        self.readout = Linear(D + A + (E if self.reads_token else 0), [E], bias=True)
        if config.copy:
            self.start_copying(E, A, source_size=source_size, target_size=target_size)

    # Encoder

    def encode(self, source: Ragged) -> RnnMemory:
        x_ME = self._embed(source.values, self.source_embedding)
        out_MD = self.encoder(x_ME, steps_of(source.layout))
        summary = ends_of(out_MD, source.layout, bidirectional=self.config.bidirectional)
        return RnnMemory(Ragged(self.dropout(out_MD), source.layout), summary, source.values)

    def copy_source(self, memory: RnnMemory) -> CopySource:
        assert self.copying is not None
        return self.copying.source(memory.source.values, memory.ids, memory.source.layout)

    def _first_state(self, memory: RnnMemory) -> Tensor:
        """Return the state that the decoder starts with: [L, P, B, D]."""
        first = torch.tanh(self.bridge(memory.summary))
        parts = first.view(-1, self.config.num_layers, self.decoder.num_parts, self.config.hidden)
        return parts.permute(1, 2, 0, 3).contiguous()

    # Decoder in training: all steps at once, or one after the other

    def hidden(self, target: Ragged, memory: RnnMemory) -> Tensor:
        x_NE = self._embed(target.values, self.target_embedding)
        state = self._first_state(memory)
        if self.config.feeds in ("summary", "nothing"):
            return self._at_once(x_NE, target.layout, state, memory)
        return self._step_by_step(x_NE, steps_of(target.layout), state, memory)

    def _at_once(self, x_NE: Tensor, layout: Layout, state: Tensor, memory: RnnMemory) -> Tensor:
        """Run over a rectangle: what follows the end of a sentence does not affect the sentence."""
        x_BTE = layout.pad(x_NE)
        if self.alignment is None:
            context_BTD = memory.summary[:, None].expand(-1, layout.longest, -1)
            states_BTD = self.decoder.onwards(torch.cat([x_BTE, context_BTD.to(x_BTE.dtype)], dim=-1), state)
        else:
            states_BTD = self.decoder.onwards(x_BTE, state)
            context_BTD, _ = self.alignment(states_BTD, self.alignment.annotate(memory.source))
        states_ND, context_ND = layout.unpad(states_BTD), layout.unpad(context_BTD)
        return self.dropout(self._read_out(states_ND, context_ND, x_NE))

    def _step_by_step(self, x_NE: Tensor, order: TimeOrder | Rectangle, state: Tensor, memory: RnnMemory) -> Tensor:
        assert self.alignment is not None
        annotations = self.alignment.annotate(memory.source)
        if order.sentences is not None:
            annotations, state = annotations.of(order.sentences), state.index_select(2, order.sentences)
        fed = state.new_zeros(state.size(2), self.config.width)
        states, contexts, outputs = [], [], []
        for x_RE in order.split(x_NE):
            R = x_RE.size(0)  # the sentences that have this step come first
            state, fed, annotations = state[:, :, :R], fed[:R], annotations.first(R)
            s_RD, context_RD, state = self._advance(x_RE, fed, state, annotations, beams=1)
            if self.config.feeds == "readout":
                fed = self._read_out(s_RD, context_RD, x_RE)
                outputs.append(fed)
            else:
                # No step reads the readout, so it is computed for all steps at once.
                states.append(s_RD)
                contexts.append(context_RD)
        out_NE = order.join(outputs) if outputs else self._read_out(order.join(states), order.join(contexts), x_NE)
        return self.dropout(out_NE)

    # One step, in training and in search

    def _advance(
        self, x_RE: Tensor, fed: Tensor, state: Tensor, annotations: Annotations | None, *, beams: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output and the context after one more token, both [R, D], and the new state."""
        if annotations is None or self.alignment is None:
            # `fed` is the summary.
            s_RD, state = self.decoder.step(torch.cat([x_RE, fed], dim=-1), state)
            return s_RD, fed, state
        if self.config.feeds == "context":
            context_RD = self._attend(top(state), annotations, beams)
            s_RD, state = self.decoder.step(torch.cat([x_RE, context_RD], dim=-1), state)
        else:
            input_RD = torch.cat([x_RE, fed], dim=-1) if self.config.feeds == "readout" else x_RE
            s_RD, state = self.decoder.step(input_RD, state)
            context_RD = self._attend(s_RD, annotations, beams)
        return s_RD, context_RD, state

    def _attend(self, s_RD: Tensor, annotations: Annotations, beams: int) -> Tensor:
        assert self.alignment is not None
        context_BQD, _ = self.alignment(s_RD.unflatten(0, (-1, beams)), annotations)
        return context_BQD.flatten(0, 1)

    def _read_out(self, s_ND: Tensor, context_ND: Tensor, x_NE: Tensor) -> Tensor:
        inputs = [s_ND, context_ND, x_NE] if self.reads_token else [s_ND, context_ND]
        return torch.tanh(self.readout(torch.cat(inputs, dim=-1)))

    # The rest of the contract

    @property
    def static_shapes(self) -> bool:
        return True

    def start(self, memory: RnnMemory, *, beams: int) -> RnnState:
        state, fed = self._first_state(memory), memory.summary
        annotations = None if self.alignment is None else self.alignment.annotate(memory.source)
        if self.alignment is not None:
            fed = state.new_zeros(state.size(2), self.config.width)
        return RnnState(state, fed, annotations, beams, copied=self.start_copy(memory))

    def step(self, tokens: Tensor, state: RnnState) -> Tensor:
        x_RE = self._embed(tokens, self.target_embedding)
        s_RD, context_RD, state.cells = self._advance(
            x_RE, state.fed, state.cells, state.annotations, beams=state.beams
        )
        out_RE = self._read_out(s_RD, context_RD, x_RE)
        if state.annotations is not None:
            state.fed = out_RE
        return self.step_scores(out_RE, state.copied)

    def _embed(self, ids: Tensor, table: Tensor) -> Tensor:
        return self.dropout(F.embedding(self.known(ids), table) * math.sqrt(self.width))

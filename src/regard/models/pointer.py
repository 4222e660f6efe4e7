"""Models whose outputs are positions of their input: the output distribution is attention (Vinyals et al. 2015).

Inputs are token ids or vectors. Output 0 is the end (as an input of the decoder, the start), and output i + 1 is position i.
`Pointer` is a Transformer. Its decoder reads the encoder's outputs at the positions chosen so far; the scores of the next
position are the products of its query with a key per input position, and with a key for the end. `pointer_lstm` has the
recurrent model of the paper.

The option `outputs` says which outputs are possible, in training and in search: "any" sequence of positions, "distinct"
positions, three or more where there are as many, or a "permutation" of all positions.

Shapes: N target tokens, M source tokens, D width, B sentences, T longest target, S longest source, Q beams, R = B * Q rows
        in search, V = S + 1 columns of the scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import MAX_LAYERS, between
from regard.data.batch import NO_LABEL, Batch
from regard.data.ragged import Layout, Ragged
from regard.errors import ConfigError
from regard.models.base import Seq2Seq, make_config
from regard.models.encoder_decoder import (
    EncoderConfig,
    TransformerEncoder,
    layer_options,
    make_final_norm,
    make_positions,
)
from regard.models.states import TransformerState, start_decoder
from regard.nn.attend import AttentionMask
from regard.nn.dropout import Dropout
from regard.nn.layers import Stack, TransformerDecoderLayer
from regard.nn.linear import Linear
from regard.nn.positions import Rotation

END = 0
MAX_FREQUENCIES = 16
Outputs = Literal["any", "distinct", "permutation"]
FEWEST = {"any": 0, "distinct": 3}  # outputs before the end, if there are as many positions


class Visited:
    """Which positions the rows of a search have output. Rows and columns are those of the scores."""

    def __init__(self, outputs: Outputs, missing_BV: Tensor) -> None:
        self.outputs = outputs
        self.missing = missing_BV  # columns that a sentence does not have: [B, V]
        self.seen = torch.zeros_like(missing_BV)[:, None]  # [B, Q, V]

    def add(self, tokens_BQ: Tensor) -> None:
        """Mark these outputs. That of the start is ignored."""
        if self.outputs != "any":
            self.seen = self.seen.expand(-1, tokens_BQ.size(1), -1).scatter(2, tokens_BQ[:, :, None], True)

    def mask(self, scores_BQV: Tensor) -> Tensor:
        """Return the scores, minus infinity where an output is impossible."""
        return scores_BQV.masked_fill(impossible(self.outputs, self.seen, self.missing[:, None]), float("-inf"))

    def reorder(self, rows: Tensor, beams: int) -> None:
        """Make row i continue row rows[i]; see `DecoderState`."""
        sentences = rows.view(-1, beams)[:, 0] // beams
        self.missing = self.missing.index_select(0, sentences)
        if self.outputs == "any":
            self.seen = self.seen.index_select(0, sentences)
            return
        seen_RV = self.seen.expand(-1, beams, -1).flatten(0, 1).index_select(0, rows)
        self.seen = seen_RV.unflatten(0, (-1, beams))


def impossible(outputs: Outputs, seen: Tensor, missing: Tensor) -> Tensor:
    """Return True for columns that cannot follow: those that do not exist, and what `outputs` excludes.

    `seen` are the columns output before, `missing` those that a sentence does not have: [..., V] each.
    """
    if outputs == "any":
        return missing
    positions = (seen & ~missing)[..., 1:].sum(dim=-1)
    length = (~missing)[..., 1:].sum(dim=-1)
    too_early = positions < (length if outputs == "permutation" else length.clamp(max=FEWEST[outputs]))
    return torch.cat([too_early[..., None], (seen | missing)[..., 1:]], dim=-1)


class PointingModel(Seq2Seq):
    """An encoder-decoder that outputs positions of its input. `source_size` ids, or vectors of `input_width` numbers.

    With `frequencies` F, the vectors are extended by sin and cos of 2^k pi times each number, for k below F: numbers that
    differ little then differ much in some of them, also in bfloat16.
    """

    bos, eos, never = END, END, ()
    smooths_labels = False

    def __init__(self, width: int, outputs: Outputs, frequencies: int, *, source_size: int, input_width: int) -> None:
        super().__init__()
        if bool(source_size) == bool(input_width):
            raise ConfigError("a pointer network reads either ids (source_size) or vectors (input_width)")
        self.width, self.outputs, self.frequencies = width, outputs, frequencies
        self.embedding = nn.Parameter(torch.empty(source_size, width).normal_(std=width**-0.5)) if source_size else None
        features = input_width * (1 + 2 * frequencies)
        self.input = Linear(features, [width], bias=True, hidden=False) if input_width else None

    def _make_ends(self, key_width: int) -> None:
        """Add the vector that the decoder reads first, and the key of the end."""
        self.start_vector = nn.Parameter(torch.empty(self.width).normal_(std=self.width**-0.5))
        self.end_vector = nn.Parameter(torch.empty(key_width).normal_(std=key_width**-0.5))

    def embed(self, source: Ragged) -> Tensor:
        """Return a vector per element: [M, D]."""
        if self.embedding is not None:
            return F.embedding(source.values, self.embedding) * math.sqrt(self.width)
        assert self.input is not None
        values = source.values.to(self.start_vector.dtype)
        values = values[:, None] if values.dim() == 1 else values
        # In full precision: bfloat16 keeps two or three digits of a coordinate.
        with torch.autocast(values.device.type, enabled=False):
            vectors: Tensor = self.input(self._features(values))
            return vectors

    def _features(self, values: Tensor) -> Tensor:
        if not self.frequencies:
            return values
        scale = math.pi * 2.0 ** torch.arange(self.frequencies, device=values.device, dtype=values.dtype)
        angles = (values[:, :, None] * scale).flatten(1)
        return torch.cat([values, angles.sin(), angles.cos()], dim=-1)

    def read(self, target: Ragged, elements_MD: Tensor, layout: Layout) -> Tensor:
        """Return what the decoder reads: the vectors of the elements that were output, after that of the start: [N, D]."""
        first_N = layout.offsets.index_select(0, target.layout.sentences).long()
        places_N = (first_N + (target.values - 1).clamp(min=0)).clamp(max=layout.total - 1)
        read_ND = elements_MD.index_select(0, places_N)
        return torch.where((target.values == END)[:, None], self.start_vector.to(read_ND.dtype), read_ND)

    def mask_scores(self, scores_BTV: Tensor, target: Ragged, layout: Layout) -> Tensor:
        """Return the scores of all steps for the target tokens, minus infinity where an output is impossible: [N, V]."""
        missing_BV = missing_columns(layout)
        if self.outputs == "any":
            seen = missing_BV[:, None]
        else:
            tokens_BT = target.layout.pad(target.values)
            counts_BTV = torch.zeros(scores_BTV.shape, dtype=torch.int16, device=scores_BTV.device)
            counts_BTV = counts_BTV.scatter(2, tokens_BT.long()[:, :, None], 1)
            seen = counts_BTV.cumsum(dim=1, dtype=torch.int16) > 0
        masked = scores_BTV.masked_fill(impossible(self.outputs, seen, missing_BV[:, None]), float("-inf"))
        return target.layout.unpad(masked)

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        """Smoothing has no effect: most columns of the scores are no positions of a sentence."""
        assert batch.target is not None, "a decoder reads a target"
        scores_NV = self.decode(batch.target, self.encode(batch.source)).float()
        return F.cross_entropy(scores_NV, batch.labels.values.long(), reduction="sum", ignore_index=NO_LABEL)


def missing_columns(layout: Layout) -> Tensor:
    """Return True for columns of the scores that a sentence does not have: [B, V]."""
    return F.pad(~layout.mask, (1, 0), value=False)


class PointerConfig(EncoderConfig, frozen=True):
    """An encoder, and a decoder that points at its input."""

    decoder_layers: int | None = None  # num_layers if unset
    outputs: Outputs = "any"
    frequencies: int = 0  # of sin and cos of numbers of the input
    input_order: bool = True  # False: the input is a set, and its positions are not encoded

    def check(self) -> None:
        super().check()
        between(self, 0, MAX_LAYERS, "decoder_layers")
        between(self, 0, MAX_FREQUENCIES, "frequencies")


@dataclass
class PointerState:
    """What the decoder keeps during search: its layers' states, and per sentence the inputs and keys of every output."""

    decoder: TransformerState
    inputs: Tensor  # what the decoder reads after each output: [B, V, D]
    keys: Tensor  # [B, V, D]
    visited: Visited

    def expand_beams(self) -> None:
        self.decoder.expand_beams()

    def reorder(self, rows: Tensor) -> None:
        before = self.decoder.num_sentences
        self.decoder.reorder(rows)
        beams = self.decoder.beams
        self.visited.reorder(rows, beams)
        if self.decoder.num_sentences < before:
            sentences = rows.view(-1, beams)[:, 0] // beams
            self.inputs, self.keys = self.inputs[sentences], self.keys[sentences]


class Pointer(PointingModel):
    """A Transformer encoder, and a Transformer decoder that points at its outputs."""

    def __init__(
        self, config: PointerConfig | None = None, *, source_size: int = 0, input_width: int = 0, **options: Any
    ) -> None:
        config = make_config(PointerConfig, config, options)
        sizes = {"source_size": source_size, "input_width": input_width}
        super().__init__(config.width, config.outputs, config.frequencies, **sizes)
        self.config = config
        self.max_length = config.max_positions if config.positions == "learned" else None
        D = config.width
        of_encoder = config if config.input_order else msgspec.structs.replace(config, positions="none")
        self.encoder = TransformerEncoder(of_encoder, self)
        self._make_ends(D)
        self.positions = make_positions(config)
        self.dropout = Dropout(config.dropout, self.noise)
        depth = config.num_layers if config.decoder_layers is None else config.decoder_layers
        options = {**layer_options(config), "noise": self.noise}
        self.decoder: Stack[TransformerDecoderLayer] = Stack(TransformerDecoderLayer(**options) for _ in range(depth))
        self.norm = make_final_norm(config)
        self.query = Linear(D, [D], bias=False)
        self.key = Linear(D, [D], bias=False)

    @property
    def static_shapes(self) -> bool:
        return self.config.static_shapes

    def encode(self, source: Ragged) -> Ragged:
        encoded: Ragged = self.encoder(self.embed(source), source.layout)
        return encoded

    # All positions at once

    def hidden(self, target: Ragged, memory: Ragged) -> Tensor:
        layout = target.layout
        x_ND = self.read(target, memory.values, memory.layout)
        x_ND = self.dropout(self.positions.add(x_ND, layout.positions, layout.longest))
        own = AttentionMask(layout, causal=True, window=self.config.window)
        across = AttentionMask(layout, memory.layout)
        for layer in self.decoder:
            x_ND = layer(x_ND, memory.values, own, across)
        hidden_ND: Tensor = self.norm(x_ND)
        return hidden_ND

    def decode(self, target: Ragged, memory: Ragged) -> Tensor:
        q_BTD = target.layout.pad(self.query(self.hidden(target, memory)))
        scores_BTV = self._scores(q_BTD, self._keys(memory))
        return self.mask_scores(scores_BTV, target, memory.layout)

    def _keys(self, memory: Ragged) -> Tensor:
        """Return the keys of the end and of every position: [B, V, D]."""
        keys_BSD = memory.layout.pad(self.key(memory.values))
        end_B1D = self.end_vector.to(keys_BSD.dtype).expand(keys_BSD.size(0), 1, -1)
        return torch.cat([end_B1D, keys_BSD], dim=1)

    def _scores(self, q_BQD: Tensor, keys_BVD: Tensor) -> Tensor:
        # In full precision: which of two nearby points is right may depend on the last digits.
        wide = torch.promote_types(q_BQD.dtype, torch.float32)
        with torch.autocast(q_BQD.device.type, enabled=False):
            return q_BQD.to(wide) @ keys_BVD.to(wide).transpose(1, 2) / math.sqrt(self.width)

    # One token at a time

    def start(self, memory: Ragged, *, beams: int) -> PointerState:
        config = self.config
        state = start_decoder(self.decoder, memory, num_heads=config.num_heads, window=config.window, beams=beams)
        read_BSD = memory.layout.pad(memory.values)
        start_B1D = self.start_vector.to(read_BSD.dtype).expand(read_BSD.size(0), 1, -1)
        inputs, visited = torch.cat([start_B1D, read_BSD], dim=1), Visited(self.outputs, missing_columns(memory.layout))
        return PointerState(state, inputs, self._keys(memory), visited)

    def step(self, tokens: Tensor, state: PointerState) -> Tensor:
        decoder, B = state.decoder, state.decoder.num_sentences
        rows_BQ = tokens.view(B, -1)
        state.visited.add(rows_BQ)
        x_BQD = state.inputs.gather(1, rows_BQ[:, :, None].expand(-1, -1, self.width))
        position, own_bias = decoder.position(), decoder.own_bias()
        x_RD = self.positions.add(x_BQD.flatten(0, 1), position, decoder.num_positions)
        rotary = self.config.positions == "rotary"
        rotation = Rotation(position, self.config.heads.key_width) if rotary else None
        for layer, layer_state in zip(self.decoder, decoder.layers, strict=True):
            x_RD = layer.step(x_RD, layer_state, own_bias, decoder.memory_bias, rotation)
        decoder.advance()
        q_BQD = self.query(self.norm(x_RD)).unflatten(0, (B, -1))
        scores_BQV = self._scores(q_BQD, state.keys)
        return state.visited.mask(scores_BQV).flatten(0, 1)

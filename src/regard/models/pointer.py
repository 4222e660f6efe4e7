"""A Transformer whose outputs are positions of its input: the output distribution is attention (Vinyals et al. 2015).

Inputs are token ids or vectors. The decoder reads the encoder's outputs at the positions chosen so far; the scores of the
next position are the products of its query with a key per input position, and with a key for the end. Output 0 is the end
(as an input of the decoder, the start), and output i + 1 is position i.

Shapes: N target tokens, M source tokens, D width, B sentences, T longest target, S longest source, R rows in search,
        V = S + 1 columns of the scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import MAX_LAYERS, between
from regard.data.batch import NO_LABEL, Batch
from regard.data.ragged import Ragged
from regard.errors import ConfigError
from regard.models.base import Seq2Seq, make_config
from regard.models.states import TransformerState, start_decoder
from regard.models.transformer import EncoderConfig, TransformerEncoder, layer_options
from regard.nn.attend import AttentionMask
from regard.nn.dropout import Dropout
from regard.nn.layers import Stack, TransformerDecoderLayer
from regard.nn.linear import Linear
from regard.nn.norms import Norm
from regard.nn.positions import Positions, Rotation

END = 0


class PointerConfig(EncoderConfig, frozen=True):
    """An encoder, and a decoder that points at its input."""

    decoder_layers: int | None = None  # num_layers if unset

    def check(self) -> None:
        super().check()
        between(self, 0, MAX_LAYERS, "decoder_layers")


@dataclass
class PointerState:
    """What the decoder keeps during search: its layers' states, and per sentence the inputs and keys of every output."""

    decoder: TransformerState
    inputs: Tensor  # what the decoder reads after each output: [B, V, D]
    keys: Tensor  # [B, V, D]
    missing: Tensor  # True for columns that a sentence does not have: [B, V]

    def expand_beams(self) -> None:
        self.decoder.expand_beams()

    def reorder(self, rows: Tensor) -> None:
        before = self.decoder.num_sentences
        self.decoder.reorder(rows)
        if self.decoder.num_sentences < before:
            sentences = rows.view(-1, self.decoder.beams)[:, 0] // self.decoder.beams
            self.inputs, self.keys = self.inputs[sentences], self.keys[sentences]
            self.missing = self.missing[sentences]


class Pointer(Seq2Seq):
    """An encoder-decoder that outputs positions of its input. `source_size` ids, or vectors of `input_width` numbers."""

    bos, eos, never = END, END, ()

    def __init__(
        self, config: PointerConfig | None = None, *, source_size: int = 0, input_width: int = 0, **options: Any
    ) -> None:
        config = make_config(PointerConfig, config, options)
        super().__init__()
        if bool(source_size) == bool(input_width):
            raise ConfigError("a pointer network reads either ids (source_size) or vectors (input_width)")
        self.config, self.width = config, config.width
        self.max_length = config.max_positions if config.positions == "learned" else None
        D = config.width
        self.embedding = nn.Parameter(torch.empty(source_size, D).normal_(std=D**-0.5)) if source_size else None
        self.input = Linear(input_width, [D], bias=True, hidden=False) if input_width else None
        self.encoder = TransformerEncoder(config, self)
        self.start_vector = nn.Parameter(torch.empty(D).normal_(std=D**-0.5))
        self.end_vector = nn.Parameter(torch.empty(D).normal_(std=D**-0.5))
        self.positions = Positions(config.positions, D, max_positions=config.max_positions)
        self.dropout = Dropout(config.dropout, self.noise)
        depth = config.num_layers if config.decoder_layers is None else config.decoder_layers
        options = {**layer_options(config), "noise": self.noise}
        self.decoder: Stack[TransformerDecoderLayer] = Stack(TransformerDecoderLayer(**options) for _ in range(depth))
        self.norm = Norm(config.norm, D) if config.norm_order == "pre" else nn.Identity()
        self.query = Linear(D, [D], bias=False)
        self.key = Linear(D, [D], bias=False)

    @property
    def static_shapes(self) -> bool:
        return self.config.static_shapes

    def encode(self, source: Ragged) -> Ragged:
        if self.embedding is not None:
            x_MD = F.embedding(source.values, self.embedding) * math.sqrt(self.width)
        else:
            assert self.input is not None
            values = source.values.to(self.start_vector.dtype)
            # In full precision: bfloat16 keeps two or three digits of a coordinate.
            with torch.autocast(values.device.type, enabled=False):
                x_MD = self.input(values[:, None] if values.dim() == 1 else values)
        encoded: Ragged = self.encoder(x_MD, source.layout)
        return encoded

    # All positions at once

    def hidden(self, target: Ragged, memory: Ragged) -> Tensor:
        layout = target.layout
        first_N = memory.layout.offsets.index_select(0, layout.sentences).long()
        # The dummy sentence of a packed batch may be empty in the source.
        read_N = (first_N + (target.values - 1).clamp(min=0)).clamp(max=memory.layout.total - 1)
        read_ND = memory.values.index_select(0, read_N)
        x_ND = torch.where((target.values == END)[:, None], self.start_vector.to(read_ND.dtype), read_ND)
        x_ND = self.dropout(self.positions.add(x_ND, layout.positions, layout.longest))
        own = AttentionMask(layout, causal=True, window=self.config.window)
        across = AttentionMask(layout, memory.layout)
        for layer in self.decoder:
            x_ND = layer(x_ND, memory.values, own, across)
        hidden_ND: Tensor = self.norm(x_ND)
        return hidden_ND

    def decode(self, target: Ragged, memory: Ragged) -> Tensor:
        q_BTD = target.layout.pad(self.query(self.hidden(target, memory)))
        keys_BVD, missing_BV = self._keys(memory)
        scores_BTV = q_BTD @ keys_BVD.transpose(1, 2) / math.sqrt(self.width)
        return target.layout.unpad(scores_BTV.masked_fill(missing_BV[:, None], float("-inf")))

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        """Smoothing has no effect: most columns of the scores are no positions of a sentence."""
        assert batch.target is not None, "a decoder reads a target"
        scores_NV = self.decode(batch.target, self.encode(batch.source)).float()
        return F.cross_entropy(scores_NV, batch.labels.values.long(), reduction="sum", ignore_index=NO_LABEL)

    def _keys(self, memory: Ragged) -> tuple[Tensor, Tensor]:
        """Return the keys of the end and of every position, [B, V, D], and True for columns that do not exist: [B, V]."""
        keys_BSD = memory.layout.pad(self.key(memory.values))
        end_B1D = self.end_vector.to(keys_BSD.dtype).expand(keys_BSD.size(0), 1, -1)
        return torch.cat([end_B1D, keys_BSD], dim=1), F.pad(~memory.layout.mask, (1, 0), value=False)

    # One token at a time

    def start(self, memory: Ragged, *, beams: int) -> PointerState:
        config = self.config
        state = start_decoder(self.decoder, memory, num_heads=config.num_heads, window=config.window, beams=beams)
        read_BSD = memory.layout.pad(memory.values)
        start_B1D = self.start_vector.to(read_BSD.dtype).expand(read_BSD.size(0), 1, -1)
        return PointerState(state, torch.cat([start_B1D, read_BSD], dim=1), *self._keys(memory))

    def step(self, tokens: Tensor, state: PointerState) -> Tensor:
        decoder, B = state.decoder, state.decoder.num_sentences
        rows_BQ = tokens.view(B, -1)
        x_BQD = state.inputs.gather(1, rows_BQ[:, :, None].expand(-1, -1, self.width))
        position, own_bias = decoder.position(), decoder.own_bias()
        x_RD = self.positions.add(x_BQD.flatten(0, 1), position, decoder.num_positions)
        rotary = self.config.positions == "rotary"
        rotation = Rotation(position, self.config.heads.key_width) if rotary else None
        for layer, layer_state in zip(self.decoder, decoder.layers, strict=True):
            x_RD = layer.step(x_RD, layer_state, own_bias, decoder.memory_bias, rotation)
        decoder.advance()
        q_BQD = self.query(self.norm(x_RD)).unflatten(0, (B, -1))
        scores_BQV = q_BQD @ state.keys.transpose(1, 2) / math.sqrt(self.width)
        return scores_BQV.masked_fill(state.missing[:, None], float("-inf")).flatten(0, 1)

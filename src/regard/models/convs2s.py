"""Convolutional sequence to sequence learning (Gehring et al. 2017): gated convolutions, attention in every decoder layer.

Sums of two terms are scaled by √½, so that their variance stays that of one term. The weight normalization of the paper is
left out.

Shapes: N target tokens, M source tokens, E width of embeddings and attention, D width of a layer, B sentences,
        Q beams, R = B * Q rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import kernels
from regard.config import MAX_LAYERS, MAX_POSITIONS, MAX_WIDTH, Struct, below_one, between
from regard.config.transformer import Tie
from regard.data.ragged import Layout, Ragged
from regard.models.base import TextSeq2Seq, make_config
from regard.models.tied_embeddings import TiedEmbeddings
from regard.nn.alignment import Alignment, Annotations
from regard.nn.attend import AttentionMask
from regard.nn.convolution import Convolution
from regard.nn.dropout import Dropout, Noise
from regard.nn.layers import Stack
from regard.nn.linear import Linear
from regard.nn.positions import Positions

HALF = math.sqrt(0.5)
SPREAD = 0.1  # of the initial embeddings: attention compares sums of them, unscaled, and should start out even


class ConvS2SConfig(Struct, frozen=True):
    """Defaults are the paper's model for IWSLT."""

    width: int = 256  # of embeddings, of attention, and of the output layer's input
    encoder: tuple[tuple[int, int], ...] = ((256, 3),) * 4  # (width, kernel) of each layer
    decoder: tuple[tuple[int, int], ...] = ((256, 3),) * 3  # the same of the decoder
    dropout: float = 0.2  # on embeddings, and on the inputs of every convolution and of the output layer
    max_positions: int = 1024  # most tokens of a sentence, because positions are learned
    tie: Tie = "none"  # which embeddings share weights

    def check(self) -> None:
        between(self, 1, MAX_WIDTH, "width")
        between(self, 1, MAX_POSITIONS, "max_positions")
        below_one(self, "dropout")
        for name in ("encoder", "decoder"):
            if not 1 <= len(getattr(self, name)) <= MAX_LAYERS:
                raise ValueError(f"{name} has no layers, or too many; give (width, kernel) of 1 to {MAX_LAYERS:,}")
            for width, kernel in getattr(self, name):
                if not 1 <= width <= MAX_WIDTH or not 1 <= kernel <= 1000:
                    raise ValueError(f"{name} has a layer of {width, kernel}; width and kernel must be at least 1")
                if kernel % 2 == 0 and name == "encoder":
                    raise ValueError(f"encoder has a layer of kernel {kernel}; it must be odd, to be centred")


WMT = ((512, 3),) * 9 + ((1024, 3),) * 4 + ((2048, 1),) * 2
PRESETS: dict[str, dict[str, object]] = {
    "iwslt": {},
    "wmt-en-de": {"width": 768, "encoder": WMT, "decoder": WMT},
    "tiny": {"dropout": 0.3, "tie": "all"},
}


class ConvBlock(nn.Module):
    """A gated convolution and its residual connection; the width may change."""

    def __init__(self, width_in: int, width: int, kernel: int, *, causal: bool, dropout: float, noise: Noise) -> None:
        super().__init__()
        self.dropout = Dropout(dropout, noise)
        self.convolution = Convolution(width_in, 2 * width, kernel, causal=causal)
        # A gate halves its input: four times the variance makes up for it and for dropout (section 3.5 of the paper).
        nn.init.normal_(self.convolution.weight, std=math.sqrt(4 * (1 - dropout) / (kernel * width_in)))
        self.carry = None if width_in == width else Linear(width_in, [width], bias=True)

    def forward(self, x_ND: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Return the gated convolution, and the residual to be added to it."""
        return F.glu(self.convolution(self.dropout(x_ND), layout)), self._carried(x_ND)

    def step(self, x_RD: Tensor, recent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the same for one token per row, and the new recent inputs."""
        out, recent = self.convolution.step(x_RD, recent)
        return F.glu(out), self._carried(x_RD), recent

    def _carried(self, x_ND: Tensor) -> Tensor:
        return x_ND if self.carry is None else self.carry(x_ND)


class DecoderBlock(nn.Module):
    """A causal block that attends to the source between its convolution and its residual connection."""

    def __init__(self, width_in: int, width: int, kernel: int, width_e: int, *, dropout: float, noise: Noise) -> None:
        super().__init__()
        self.block = ConvBlock(width_in, width, kernel, causal=True, dropout=dropout, noise=noise)
        self.alignment = Alignment("dot", width_e, width_e)
        self.query = Linear(width, [width_e], bias=True)
        self.answer = Linear(width_e, [width], bias=True)

    def forward(self, x_ND: Tensor, g_NE: Tensor, memory: ConvMemory, mask: AttentionMask) -> Tensor:
        """Return the layer's output, given its input and the embeddings of the target."""
        gated, carried = self.block(x_ND, mask.queries)
        read_NE = self.alignment.over((self.query(gated) + g_NE) * HALF, memory.keys, memory.values, mask)
        lengths_N = mask.keys.offsets.diff().index_select(0, mask.queries.sentences)
        return ((gated + self.answer(read_NE * _scale(lengths_N, read_NE)[:, None])) * HALF + carried) * HALF

    def step(
        self, x_RD: Tensor, g_RE: Tensor, recent: Tensor, source: Annotations, *, beams: int
    ) -> tuple[Tensor, Tensor]:
        """Return the layer's output for one token per row, and the updated recent inputs."""
        gated, carried, recent = self.block.step(x_RD, recent)
        read_BQE = self._read(((self.query(gated) + g_RE) * HALF).unflatten(0, (-1, beams)), source)
        return ((gated + self.answer(read_BQE.flatten(0, 1))) * HALF + carried) * HALF, recent

    def _read(self, queries_BQE: Tensor, source: Annotations) -> Tensor:
        read_BQE: Tensor = self.alignment(queries_BQE, source)[0]
        return read_BQE * _scale(source.lengths, read_BQE)[:, None, None]


def _scale(lengths: Tensor, like: Tensor) -> Tensor:
    """Return √S, which scales up what attention reads from S tokens: a mean of S values has 1/S of their variance."""
    return lengths.to(like.dtype).sqrt()


@dataclass
class ConvState:
    """What the decoder keeps: the last inputs of every convolution."""

    recent: list[Tensor]
    source: Annotations
    max_beams: int  # after `expand_beams`
    beams: int = 1
    length: int = 0

    def expand_beams(self) -> None:
        self.beams = self.max_beams
        self.recent = [one.repeat_interleave(self.beams, dim=0) for one in self.recent]

    def reorder(self, rows: Tensor) -> None:
        self.recent = [one.index_select(0, rows) for one in self.recent]
        self.source = self.source.of(rows.view(-1, self.beams)[:, 0] // self.beams)


@dataclass(frozen=True)
class ConvMemory:
    """What the decoder reads of a source."""

    keys: Tensor  # the encoder's output: [M, E]
    values: Tensor  # the encoder's output plus the embeddings: [M, E]
    layout: Layout


class ConvS2S(TiedEmbeddings, TextSeq2Seq):
    """An encoder and a decoder of gated convolutions."""

    def __init__(
        self, config: ConvS2SConfig | None = None, *, source_size: int, target_size: int, **options: Any
    ) -> None:
        config = make_config(ConvS2SConfig, config, options)
        super().__init__(config.width, config.tie, source_size=source_size, target_size=target_size)
        self.config = config
        E = config.width
        self.max_length = config.max_positions
        self.source_positions = Positions("learned", E, max_positions=config.max_positions)
        self.target_positions = Positions("learned", E, max_positions=config.max_positions)
        self.dropout = Dropout(config.dropout, self.noise)
        options = {"dropout": config.dropout, "noise": self.noise}
        widths = [E, *(width for width, _ in config.encoder)]
        self.into_encoder = Linear(E, [widths[1]], bias=True)
        widths[0] = self.into_encoder.out_features
        self.encoder: Stack[ConvBlock] = Stack(
            ConvBlock(before, width, kernel, causal=False, **options)
            for before, (width, kernel) in zip(widths[:-1], config.encoder, strict=True)
        )
        self.out_of_encoder = Linear(widths[-1], [E], bias=True)
        widths = [E, *(width for width, _ in config.decoder)]
        self.into_decoder = Linear(E, [widths[1]], bias=True)
        widths[0] = self.into_decoder.out_features
        self.decoder: Stack[DecoderBlock] = Stack(
            DecoderBlock(before, width, kernel, E, **options)
            for before, (width, kernel) in zip(widths[:-1], config.decoder, strict=True)
        )
        self.out_of_decoder = Linear(widths[-1], [E], bias=True)
        for table in (self.source_embedding, self.target_embedding, self.output_weight):
            nn.init.normal_(table, std=SPREAD)
        for positions in (self.source_positions, self.target_positions):
            nn.init.normal_(positions.learned, std=SPREAD)

    def encode(self, source: Ragged) -> ConvMemory:
        layout = source.layout
        e_ME = self._embed(
            source.values, self.source_embedding, self.source_positions, layout.positions, layout.longest
        )
        x_MD = self.into_encoder(e_ME)
        for block in self.encoder:
            gated, carried = block(x_MD, layout)
            x_MD = (gated + carried) * HALF
        z_ME = self.out_of_encoder(x_MD)
        if self.training:
            # Every decoder layer sends two gradients, which together should weigh as one (section 3.5 of the paper).
            share = 1 / (2 * len(self.decoder))
            z_ME = z_ME * share + z_ME.detach() * (1 - share)
        return ConvMemory(z_ME, (z_ME + e_ME) * HALF, layout)

    def hidden(self, target: Ragged, memory: ConvMemory) -> Tensor:
        layout, mask = target.layout, AttentionMask(target.layout, memory.layout)
        g_NE = self._embed(
            target.values, self.target_embedding, self.target_positions, layout.positions, layout.longest
        )
        x_ND = self.into_decoder(g_NE)
        for layer in self.decoder:
            x_ND = layer(x_ND, g_NE, memory, mask)
        return self.dropout(self.out_of_decoder(x_ND))

    @property
    def static_shapes(self) -> bool:
        return self.config.width <= kernels.WIDEST_HEAD

    def start(self, memory: ConvMemory, *, beams: int) -> ConvState:
        recent = [layer.block.convolution.start(memory.layout.num_sentences) for layer in self.decoder]
        return ConvState(recent, Annotations.made_of(memory.keys, memory.values, memory.layout), beams)

    def step(self, tokens: Tensor, state: ConvState) -> Tensor:
        place = torch.full((1,), state.length, device=tokens.device)
        g_RE = self._embed(tokens, self.target_embedding, self.target_positions, place, state.length + 1)
        x_RD = self.into_decoder(g_RE)
        for number, layer in enumerate(self.decoder):
            x_RD, state.recent[number] = layer.step(x_RD, g_RE, state.recent[number], state.source, beams=state.beams)
        state.length += 1
        return self.project(self.out_of_decoder(x_RD))

    def _embed(self, ids: Tensor, table: Tensor, positions: Positions, places: Tensor, longest: int) -> Tensor:
        return self.dropout(positions.add(F.embedding(ids, table), places, longest))

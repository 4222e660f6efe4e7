"""ByteNet (Kalchbrenner et al. 2016): dilated convolutions over characters, the decoder on top of the encoder.

There is no attention. The encoder's output is made a little longer than the target is likely to be, and the decoder unfolds
over it: at position t it reads its output so far and the encoder's output at position t, or zeros past the end of that.

Shapes: N target tokens, M positions of the encoder's output, D width of the stream, B sentences, R rows in search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import MAX_WIDTH, Struct, below_one, between
from regard.config.transformer import Tie
from regard.data.ragged import Layout, Ragged, StaticLayout
from regard.models.base import TextSeq2Seq, make_config
from regard.models.tied_embeddings import TiedEmbeddings
from regard.nn.convolution import Convolution
from regard.nn.dropout import Dropout, Noise
from regard.nn.layers import Stack
from regard.nn.linear import Linear
from regard.nn.norms import Norm


class ByteNetConfig(Struct, frozen=True):
    """Defaults are the paper's model for translation."""

    width: int = 1600  # of the stream; convolutions are half as wide
    kernel: int = 3  # width of the convolutions, in tokens
    dilations: tuple[int, ...] = (1, 2, 4, 8, 16)  # of the blocks of one set
    sets: int = 6  # in the encoder, and in the decoder
    dropout: float = 0.0  # on embeddings and on the branch of every block; the paper has none
    stretch: float = 1.2  # positions of the encoder's output per source token
    extra: int = 0  # further positions per sentence
    tie: Tie = "none"  # which embeddings share weights

    def check(self) -> None:
        between(self, 1, 1000, "kernel", "sets")
        between(self, 2, MAX_WIDTH, "width")
        between(self, 0, 10_000, "extra")
        below_one(self, "dropout")
        if self.width % 2 or self.kernel % 2 == 0:
            raise ValueError(f"width is {self.width} and kernel {self.kernel}; they must be even and odd")
        if not 1 <= self.stretch <= 10 or not all(1 <= dilation <= 100_000 for dilation in self.dilations):
            raise ValueError("stretch must be between 1 and 10, and dilations between 1 and 100,000")
        if not 1 <= len(self.dilations) <= 100:
            raise ValueError(f"there are {len(self.dilations)} dilations; give 1 to 100")

    def unfolded(self, length: int) -> int:
        """Return the number of positions of the encoder's output for a source of this length."""
        return math.ceil(self.stretch * length) + self.extra


PRESETS: dict[str, dict[str, object]] = {
    "wmt": {},
    "tiny": {"width": 256, "sets": 2, "dropout": 0.2, "tie": "all"},
}


class ByteNetBlock(nn.Module):
    """Norm, ReLU, half the width; norm, ReLU, dilated convolution; norm, ReLU, full width; added to the input."""

    def __init__(self, width: int, kernel: int, dilation: int, *, causal: bool, dropout: float, noise: Noise) -> None:
        super().__init__()
        self.first, self.second, self.third = Norm("layer", width), Norm("layer", width // 2), Norm("layer", width // 2)
        self.narrow = Linear(width, [width // 2], bias=True)
        self.convolution = Convolution(width // 2, width // 2, kernel, causal=causal, dilation=dilation)
        self.widen = Linear(width // 2, [width], bias=True)
        self.dropout = Dropout(dropout, noise)

    def forward(self, x_ND: Tensor, layout: Layout) -> Tensor:
        return self._after(x_ND, self.convolution(self._before(x_ND), layout))

    def step(self, x_RD: Tensor, recent: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output for one token per row, and the inputs that the next step looks back at."""
        out, recent = self.convolution.step(self._before(x_RD), recent)
        return self._after(x_RD, out), recent

    def _before(self, x_ND: Tensor) -> Tensor:
        return F.relu(self.second(self.narrow(F.relu(self.first(x_ND)))))

    def _after(self, x_ND: Tensor, branch: Tensor) -> Tensor:
        return self.dropout.add(x_ND, self.widen(F.relu(self.third(branch))))


@dataclass
class ByteNetState:
    """What the decoder keeps: the last inputs of every convolution, and the encoder's output."""

    recent: list[Tensor]
    places: Tensor  # the encoder's output, zeros past its end: [B, positions, D]
    max_beams: int  # after `expand_beams`
    beams: int = 1
    length: int = 0

    def expand_beams(self) -> None:
        self.beams = self.max_beams
        self.recent = [one.repeat_interleave(self.beams, dim=0) for one in self.recent]

    def reorder(self, rows: Tensor) -> None:
        self.recent = [one.index_select(0, rows) for one in self.recent]
        self.places = self.places.index_select(0, rows.view(-1, self.beams)[:, 0] // self.beams)


class ByteNet(TiedEmbeddings, TextSeq2Seq):
    """Two stacks of dilated convolutions, the decoder on top of the encoder."""

    def __init__(
        self, config: ByteNetConfig | None = None, *, source_size: int, target_size: int, **options: Any
    ) -> None:
        config = make_config(ByteNetConfig, config, options)
        super().__init__(config.width, config.tie, source_size=source_size, target_size=target_size)
        self.config = config
        self.dropout = Dropout(config.dropout, self.noise)
        self.encoder, self.decoder = self._stack(causal=False), self._stack(causal=True)
        self.join = Linear(config.width, [config.width], bias=True)  # from the encoder's output to the decoder's input
        self.last_norm = Norm("layer", config.width)
        self.last = Linear(config.width, [config.width], bias=True)

    def _stack(self, *, causal: bool) -> Stack[ByteNetBlock]:
        config = self.config
        return Stack(
            ByteNetBlock(config.width, config.kernel, dilation, causal=causal, dropout=config.dropout, noise=self.noise)
            for _ in range(config.sets)
            for dilation in config.dilations
        )

    def encode(self, source: Ragged) -> Ragged:
        layout = self._unfolded(source.layout)
        x_SD = self._embed(source.values, self.source_embedding)
        begins = layout.offsets.to(torch.int64).index_select(0, source.layout.sentences)
        x_MD = x_SD.new_zeros(layout.total, self.width).index_copy(0, begins + source.layout.positions, x_SD)
        for block in self.encoder:
            x_MD = block(x_MD, layout)
        return Ragged(self.join(x_MD), layout)

    def _unfolded(self, layout: Layout) -> Layout:
        """Return the layout of the encoder's output. A static one stays static, with dummy positions at the end."""
        if not isinstance(layout, StaticLayout):
            return Layout([self.config.unfolded(length) for length in layout.lengths], layout.device)
        longest, total = self.config.unfolded(layout.longest), math.ceil(self.config.stretch * layout.total)
        total += layout.num_sentences * (1 + self.config.extra)
        lengths = torch.ceil(self.config.stretch * layout.offsets.diff().double()).int() + self.config.extra
        offsets = F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
        # Not an assignment, which copies from the host: a CUDA graph cannot record that.
        offsets[-1:].fill_(total)
        place = torch.arange(total, dtype=torch.int32, device=layout.device)
        sentences = torch.searchsorted(offsets[1:], place, right=True, out_int32=True)
        positions = place - offsets.index_select(0, sentences)
        return StaticLayout(positions, sentences, offsets, longest=longest)

    @property
    def static_shapes(self) -> bool:
        return True

    def hidden(self, target: Ragged, memory: Ragged) -> Tensor:
        x_ND = self._embed(target.values, self.target_embedding) + self._below(target.layout, memory)
        for block in self.decoder:
            x_ND = block(x_ND, target.layout)
        return self._finish(x_ND)

    def _below(self, layout: Layout, memory: Ragged) -> Tensor:
        """Return the encoder's output at the position of each target token; zeros past its end."""
        offsets = memory.layout.offsets.to(torch.int64)
        place_N = offsets.index_select(0, layout.sentences) + layout.positions
        exists_N = place_N < offsets.index_select(0, layout.sentences + 1)
        read_ND = memory.values.index_select(0, place_N.clamp(max=memory.layout.total - 1))
        return read_ND.masked_fill(~exists_N[:, None], 0.0)

    def _finish(self, x_ND: Tensor) -> Tensor:
        return F.relu(self.last(F.relu(self.last_norm(x_ND))))

    def start(self, memory: Ragged, *, beams: int) -> ByteNetState:
        recent = [block.convolution.start(memory.layout.num_sentences) for block in self.decoder]
        places = memory.layout.pad(memory.values).masked_fill(~memory.layout.mask[:, :, None], 0.0)
        return ByteNetState(recent, places, beams)

    def step(self, tokens: Tensor, state: ByteNetState) -> Tensor:
        x_RD = self._embed(tokens, self.target_embedding)
        if state.length < state.places.size(1):
            x_RD = x_RD + state.places[:, state.length].repeat_interleave(state.beams, dim=0)
        for number, block in enumerate(self.decoder):
            x_RD, state.recent[number] = block.step(x_RD, state.recent[number])
        state.length += 1
        return self.project(self._finish(x_RD))

    def _embed(self, ids: Tensor, table: Tensor) -> Tensor:
        return self.dropout(F.embedding(ids, table) * math.sqrt(self.width))

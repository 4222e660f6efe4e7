"""The Neural Turing Machine (Graves et al. 2014): a controller that reads and writes an external memory through heads.

At each step the controller reads the input and what the heads read at the step before. From its output follow, in one
product for all heads, how each addresses the memory, and what is erased and added. The heads read the memory as it is before
this step's write. The output layer sees the controller's output and what was read.

Everything is computed in float32: weights are raised to powers at every step, and bfloat16 has only two or three digits.

Shapes: N steps of a batch, B sequences, C channels of the input, D width of the controller, G = D or 4 D, V output bits,
        R read heads, W write heads, H = R + W, L locations of the memory, M width of a location.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import MAX_WIDTH, Struct, between
from regard.data.ragged import Ragged
from regard.models.base import make_config
from regard.models.binary import BinaryModel
from regard.nn.attention_log import current_log
from regard.nn.external_memory import SHIFTS, content_weights, interpolate, read, sharpen, shift, write


class NtmConfig(Struct, frozen=True):
    """Defaults are those of the paper for copying."""

    width: int = 100  # of the controller
    controller: Literal["feed-forward", "lstm"] = "feed-forward"
    locations: int = 128  # of the memory
    location_width: int = 20
    read_heads: int = 1
    write_heads: int = 1
    # What the memory holds at first. A small constant trains most reliably (Collier and Beel 2018).
    memory: Literal["constant", "learned"] = "constant"
    # Where the heads are at first: at the first location, or anywhere.
    start: Literal["first", "learned"] = "first"

    def check(self) -> None:
        between(self, 1, MAX_WIDTH, "width", "location_width")
        between(self, len(SHIFTS), 2**16, "locations")
        between(self, 1, 64, "read_heads", "write_heads")
        if self.locations * self.location_width > 2**22:
            raise ValueError(f"the memory has {self.locations} x {self.location_width} numbers; at most 2**22 are held")


CONSTANT = 1e-6  # in every place of a constant memory
SMALLEST_NORM = 1e-4  # of a location: one that holds only CONSTANT is like no key


@dataclass(frozen=True)
class MemoryStep:
    """What the heads did in one step."""

    read_weights: Tensor  # [B, R, L]
    write_weights: Tensor  # [B, W, L]
    reads: Tensor  # [B, R, M]
    adds: Tensor  # [B, W, M]
    erases: Tensor  # [B, W, M]


class Ntm(BinaryModel):
    """A controller with an external memory."""

    similar_lengths = True
    packs_float32 = True

    def __init__(
        self,
        config: NtmConfig | None = None,
        *,
        input_width: int,
        output_width: int,
        largest_number: int = 0,
        **options: Any,
    ) -> None:
        config = make_config(NtmConfig, config, options)
        super().__init__(input_width=input_width, output_width=output_width, largest_number=largest_number)
        self.config, self.width = config, config.width
        D, L, M = config.width, config.locations, config.location_width
        R, W = config.read_heads, config.write_heads
        read_width = R * M
        self.has_lstm = config.controller == "lstm"
        gates = 4 * D if self.has_lstm else D
        self.input = nn.Linear(self.num_channels, gates)
        self.from_reads = nn.Linear(read_width, gates, bias=False)
        self.recurrent = nn.Linear(D, gates, bias=False) if self.has_lstm else None
        # In one product: keys and adds, then erases and gates, then strengths and powers, then shifts.
        H = R + W
        self.parts = [H * M + W * M, W * M + H, 2 * H, H * len(SHIFTS)]
        self.heads = nn.Linear(D, sum(self.parts))
        self.output = nn.Linear(D + read_width, output_width)
        self.first_reads = nn.Parameter(torch.zeros(read_width))
        self.first_memory = nn.Parameter(torch.empty(L, M).normal_(std=M**-0.5)) if config.memory == "learned" else None
        self.first_weights = nn.Parameter(torch.empty(H, L).normal_()) if config.start == "learned" else None
        self._draw()

    @torch.no_grad()
    def _draw(self) -> None:
        """Initialize the weights: Xavier, biases 0; those of an LSTM's forget gates 1."""
        for layer in (self.input, self.from_reads, self.recurrent, self.heads, self.output):
            if layer is None:
                continue
            nn.init.xavier_uniform_(layer.weight, gain=1.0)
            if layer.bias is not None:
                layer.bias.zero_()
        if self.has_lstm:
            self.input.bias.chunk(4)[1].fill_(1.0)

    @property
    def static_shapes(self) -> bool:
        return True

    def logits(self, source: Ragged) -> Ragged:
        log = current_log()
        return self.run(source, (lambda step: None) if log is None else log.memory_steps.append)

    def run(self, source: Ragged, record: Callable[[MemoryStep], None]) -> Ragged:
        """Return the logits after each step, [N, V], and pass what the heads did in each step to `record`."""
        layout = source.layout
        with torch.autocast(source.values.device.type, enabled=False):
            # What follows the end of a sequence does not affect the sequence.
            inputs = layout.pad(self.input(self.channels(source.values))).unbind(1)
            B = layout.num_sentences
            memory, weights, reads = self._first(B)
            state = torch.zeros(2, B, self.width, device=reads.device).unbind(0) if self.has_lstm else None
            outputs = []
            for x_BG in inputs:
                hidden_BD, state = self._control(x_BG, reads, state)
                memory, weights, reads = self._use_memory(hidden_BD, memory, weights, record)
                outputs.append(torch.cat([hidden_BD, reads], dim=-1))
            out_NV = self.output(layout.unpad(torch.stack(outputs, dim=1)))
        return Ragged(out_NV, layout)

    def _first(self, B: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return memory, weights of the heads and what they have read, before the first step."""
        config, device = self.config, self.first_reads.device
        L, H = config.locations, config.read_heads + config.write_heads
        if self.first_memory is None:
            memory = torch.full((B, L, config.location_width), CONSTANT, device=device)
        else:
            memory = self.first_memory.expand(B, -1, -1)
        if self.first_weights is None:
            weights = torch.zeros(B, H, L, device=device)
            weights[..., 0] = 1.0
        else:
            weights = self.first_weights.softmax(dim=-1).expand(B, -1, -1)
        return memory, weights, self.first_reads.tanh().expand(B, -1)

    def _control(
        self, x_BG: Tensor, reads: Tensor, state: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        """Return the controller's output and its next state. `x_BG` is the input, multiplied already."""
        sums_BG = torch.addmm(x_BG, reads, self.from_reads.weight.t())
        if state is None:
            return sums_BG.tanh(), None
        assert self.recurrent is not None
        hidden_BD, cell_BD = state
        sums_BG = torch.addmm(sums_BG, hidden_BD, self.recurrent.weight.t())
        entry, forget, candidate, exit = sums_BG.chunk(4, dim=-1)
        cell_BD = torch.addcmul(forget.sigmoid() * cell_BD, entry.sigmoid(), candidate.tanh())
        hidden_BD = exit.sigmoid() * cell_BD.tanh()
        return hidden_BD, (hidden_BD, cell_BD)

    def _use_memory(
        self, hidden_BD: Tensor, memory: Tensor, before: Tensor, record: Callable[[MemoryStep], None]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return memory, weights and reads after a step of all heads."""
        config = self.config
        R, W, M = config.read_heads, config.write_heads, config.location_width
        H = R + W
        vectors, gates, positive, shifts = self.heads(hidden_BD).split(self.parts, dim=-1)
        keys_BHM, adds_BWM = vectors.tanh().unflatten(-1, (H + W, M)).split([H, W], dim=1)
        erases, gate_BH = gates.sigmoid().split([W * M, H], dim=-1)
        strength_BH, power_BH = F.softplus(positive).chunk(2, dim=-1)
        shares_BHS = shifts.unflatten(-1, (H, len(SHIFTS))).softmax(dim=-1)
        content = content_weights(memory, keys_BHM, strength_BH, smallest_norm=SMALLEST_NORM)
        weights = sharpen(shift(interpolate(before, content, gate_BH), shares_BHS), 1 + power_BH)
        read_BRL, write_BWL = weights.split([R, W], dim=1)
        reads_BRM, erases_BWM = read(memory, read_BRL), erases.unflatten(-1, (W, M))
        record(MemoryStep(read_BRL, write_BWL, reads_BRM, adds_BWM, erases_BWM))
        return write(memory, write_BWL, erases_BWM, adds_BWM), weights, reads_BRM.flatten(1)

"""Positions: the paper's sinusoids, learned vectors, or rotations of queries and keys (rotary).

Shapes: N tokens, D width, H heads, K head width.
"""

from __future__ import annotations

from typing import TypeGuard, get_args

import torch
from torch import Tensor, nn

from regard.config.transformer import PositionKind, SinusoidKind
from regard.data.ragged import Layout
from regard.errors import DataError
from regard.messages import counted
from regard.nn.sequences import Sequences, flatten

MAX_ROWS = 1024  # of the first table of sinusoids; it grows when more positions are needed


def sinusoids(num_positions: int, width: int, *, kind: SinusoidKind = "sinusoid", first: int = 0) -> Tensor:
    """Return the encodings of as many positions, from `first` on: [num_positions, D].

    sinusoid          PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same) (section 3.5)
    sinusoid-halves   the same numbers, all sines before all cosines; Hugging Face's Marian models have these
    sinusoid-log      sin(pos / 10000^(i/(d/2-1))), then all cosines; tensor2tensor, Marian and fairseq have these
    """
    positions = torch.arange(first, first + num_positions, dtype=torch.float64)
    if kind == "sinusoid-log":
        steps = torch.arange(width // 2, dtype=torch.float64) / max(width // 2 - 1, 1)
        angles = positions[:, None] * 10000.0**-steps
    else:
        angles = _angles(positions, width)
    if kind == "sinusoid":
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).to(torch.float32)
    return torch.cat([angles.sin(), angles.cos()], dim=1).to(torch.float32)


def _angles(positions: Tensor, width: int) -> Tensor:
    """Return pos / 10000^(2i/d) for each position and i: [positions, D/2]. In float64: large positions need the digits."""
    frequencies = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64, device=positions.device) / width)
    return positions.to(torch.float64)[:, None] * frequencies


def is_sinusoid(kind: PositionKind) -> TypeGuard[SinusoidKind]:
    """Return whether positions of this kind are computed by `sinusoids`."""
    return kind in get_args(SinusoidKind)


class Positions(nn.Module):
    """Add to each embedding the encoding of its position. "rotary" (see `Rotation`) and "none" add nothing.

    `first` is the number of a sentence's first position in the formula of sinusoids.
    """

    table: Tensor

    def __init__(self, kind: PositionKind, width: int, *, max_positions: int = MAX_ROWS, first: int = 0) -> None:
        super().__init__()
        self.kind, self.first = kind, first
        self._outgrown: list[Tensor] = []
        if kind == "learned":
            self.learned = nn.Parameter(torch.empty(max_positions, width).normal_(std=width**-0.5))
        elif is_sinusoid(kind):
            # On the meta device only shapes are needed, and arange would import a large part of PyTorch.
            shape_only = torch.get_default_device().type == "meta"
            rows = min(max_positions, MAX_ROWS)
            table = torch.empty(rows, width) if shape_only else sinusoids(rows, width, kind=kind, first=first)
            self.register_buffer("table", table, persistent=False)

    def forward(self, x: Sequences, mask: Tensor | Layout | None = None) -> Sequences:
        """Return x plus the encoding of each token's position, in the form of x (see `nn.sequences`)."""
        tokens = flatten(x, mask)
        return tokens.restore(self.add(tokens.values, tokens.layout.positions, tokens.layout.longest))

    def add(self, x_ND: Tensor, positions_N: Tensor, longest: int) -> Tensor:
        """Return x plus the encoding of each token's position. `longest` is the largest position plus one."""
        table = self.constants(longest)
        if table is not None:
            return x_ND + table.index_select(0, positions_N).to(x_ND.dtype)
        if self.kind == "learned":
            if longest > self.learned.size(0):
                learned = counted(self.learned.size(0), "position")
                raise DataError(
                    f"a sentence has {counted(longest, 'token')} but this model learned {learned}; "
                    "split it, or train with a larger model.max_positions or sinusoids"
                )
            return x_ND + self.learned.index_select(0, positions_N)
        return x_ND

    def constants(self, longest: int) -> Tensor | None:
        """Return the table of sinusoids for at least `longest` positions, or None for other kinds."""
        if not is_sinusoid(self.kind):
            return None
        if longest > self.table.size(0):
            self._outgrown.append(self.table)  # a captured CUDA graph keeps reading the table it was captured with
            with torch.inference_mode(False):  # a table made during search must be usable in training
                larger = sinusoids(2 * longest, self.table.size(1), kind=self.kind, first=self.first)
                self.table = larger.to(self.table.device)
        return self.table


class Rotation:
    """Rotary positions (Su et al. 2021): rotate queries and keys so that their product depends on their distance only."""

    def __init__(self, positions_N: Tensor, head_width: int) -> None:
        angles = _angles(positions_N, head_width).to(torch.float32)
        self.cos, self.sin = angles.cos()[:, None, :], angles.sin()[:, None, :]

    def __call__(self, x_NHK: Tensor) -> Tensor:
        """Return queries or keys, rotated."""
        wide = torch.promote_types(x_NHK.dtype, torch.float32)
        even, odd = x_NHK.to(wide).unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack([even * self.cos - odd * self.sin, even * self.sin + odd * self.cos], dim=-1)
        return turned.flatten(-2).to(x_NHK.dtype)

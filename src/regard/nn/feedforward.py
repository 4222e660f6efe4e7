"""Position-wise feed-forward networks: FFN(x) = max(0, xW1 + b1)W2 + b2 (section 3.3), and its later kin.

Shapes: N tokens, D model width, F hidden width, R rows in search.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.ragged import Layout
from regard.nn.convolution import Convolution
from regard.nn.dropout import Dropout, Noise
from regard.nn.linear import Linear

FeedForwardKind = Literal["relu", "gelu", "swiglu", "conv"]


class FeedForward(nn.Module):
    """The same two layers at every position. "swiglu" has a third matrix, a gate beside the first (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int, kind: FeedForwardKind, *, dropout: float, noise: Noise) -> None:
        super().__init__()
        self.kind = kind
        self.inner = Linear(width, [hidden * (2 if kind == "swiglu" else 1)], bias=True)
        self.dropout = Dropout(dropout, noise)
        self.outer = Linear(hidden, [width], bias=True)

    def forward(self, x_ND: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """The branch, and the input again (`Linear.and_input`)."""
        return self._apply_to(x_ND)

    def start(self, num_rows: int) -> list[Tensor]:
        """What search must remember for this layer: nothing."""
        return []

    def step(self, x_RD: Tensor, recent: list[Tensor]) -> Tensor:
        """One token a row."""
        return self._apply_to(x_RD)[0]

    def _apply_to(self, x_ND: Tensor) -> tuple[Tensor, Tensor]:
        hidden_NF, x_ND = self.inner.and_input(x_ND, relu=self.kind == "relu")
        if self.kind == "gelu":
            hidden_NF = F.gelu(hidden_NF)
        elif self.kind == "swiglu":
            gate, hidden_NF = hidden_NF.chunk(2, dim=-1)
            hidden_NF = F.silu(gate) * hidden_NF
        return self.outer(self.dropout(hidden_NF)), x_ND


class ConvFeedForward(nn.Module):
    """Two convolutions of width 3 in place of the two layers: centred in the encoder, looking back in the decoder."""

    def __init__(self, width: int, hidden: int, *, causal: bool, dropout: float, noise: Noise) -> None:
        super().__init__()
        self.inner = Convolution(width, hidden, 3, causal=causal)
        self.dropout = Dropout(dropout, noise)
        self.outer = Convolution(hidden, width, 3, causal=causal)

    def forward(self, x_ND: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """The branch, and the input."""
        hidden_NF = torch.relu_(self.inner(x_ND, layout))
        return self.outer(self.dropout(hidden_NF), layout), x_ND

    def start(self, num_rows: int) -> list[Tensor]:
        """The last inputs of each convolution."""
        return [self.inner.start(num_rows), self.outer.start(num_rows)]

    def step(self, x_RD: Tensor, recent: list[Tensor]) -> Tensor:
        """One token a row, looking back at the recent ones, which move up by one."""
        hidden_RF, recent[0] = self.inner.step(x_RD, recent[0])
        out_RD, recent[1] = self.outer.step(torch.relu_(hidden_RF), recent[1])
        return out_RD

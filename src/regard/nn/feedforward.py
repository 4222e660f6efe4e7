"""Position-wise feed-forward networks: FFN(x) = max(0, xW1 + b1)W2 + b2 (section 3.3), and later variants.

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
from regard.nn.sequences import Sequences, flatten


class FeedForward(nn.Module):
    """The same two layers at every position. "swiglu" has a third matrix, which gates the first (Shazeer 2020).

    "silu" is x · sigmoid(x), also known as swish.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        kind: Literal["relu", "gelu", "silu", "swiglu"] = "relu",
        *,
        dropout: float = 0.0,
        noise: Noise | None = None,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.inner = Linear(width, [hidden * (2 if kind == "swiglu" else 1)], bias=True)
        self.dropout = Dropout(dropout, noise)
        self.outer = Linear(hidden, [width], bias=True)

    def forward(
        self, x: Sequences, mask: Tensor | Layout | None = None, *, with_input: bool = False
    ) -> Sequences | tuple[Tensor, Tensor]:
        """Return the output in the form of x (see `nn.sequences`). Without a mask, x may be any tensor [..., D].

        With `with_input`, return the flat output and the flat x (see `Linear.and_input`).
        """
        if isinstance(x, Tensor) and mask is None:
            return self._branch(x.reshape(-1, x.size(-1)))[0].view(x.shape)
        tokens = flatten(x, mask)
        out_ND, x_ND = self._branch(tokens.values)
        return (out_ND, x_ND) if with_input else tokens.restore(out_ND)

    def start(self, num_rows: int) -> list[Tensor]:
        """Return what search must remember for this layer: nothing."""
        return []

    def step(self, x_RD: Tensor, recent: list[Tensor]) -> Tensor:
        """Return the output for one token per row."""
        return self._branch(x_RD)[0]

    def _branch(self, x_ND: Tensor) -> tuple[Tensor, Tensor]:
        hidden_NF, x_ND = self.inner.and_input(x_ND, relu=self.kind == "relu")
        if self.kind == "gelu":
            hidden_NF = F.gelu(hidden_NF)
        elif self.kind == "silu":
            hidden_NF = F.silu(hidden_NF)
        elif self.kind == "swiglu":
            gate, hidden_NF = hidden_NF.chunk(2, dim=-1)
            hidden_NF = F.silu(gate) * hidden_NF
        return self.outer(self.dropout(hidden_NF)), x_ND


class ConvFeedForward(nn.Module):
    """Two convolutions of width 3 instead of the two layers: centred in the encoder, causal in the decoder."""

    def __init__(
        self, width: int, hidden: int, *, causal: bool, dropout: float = 0.0, noise: Noise | None = None
    ) -> None:
        super().__init__()
        self.inner = Convolution(width, hidden, 3, causal=causal)
        self.dropout = Dropout(dropout, noise)
        self.outer = Convolution(hidden, width, 3, causal=causal)

    def forward(
        self, x: Sequences, mask: Tensor | Layout | None = None, *, with_input: bool = False
    ) -> Sequences | tuple[Tensor, Tensor]:
        """Return the output in the form of x, as `FeedForward.forward` does."""
        tokens = flatten(x, mask)
        hidden_NF = torch.relu_(self.inner(tokens.values, tokens.layout))
        out_ND = self.outer(self.dropout(hidden_NF), tokens.layout)
        return (out_ND, tokens.values) if with_input else tokens.restore(out_ND)

    def start(self, num_rows: int) -> list[Tensor]:
        """Return the last inputs of each convolution before the first token, which are zeros."""
        return [self.inner.start(num_rows), self.outer.start(num_rows)]

    def step(self, x_RD: Tensor, recent: list[Tensor]) -> Tensor:
        """Return the output for one token per row, and add the token to the recent inputs."""
        hidden_RF, recent[0] = self.inner.step(x_RD, recent[0])
        out_RD, recent[1] = self.outer.step(torch.relu_(hidden_RF), recent[1])
        return out_RD

"""Layer normalization, and how a sub-layer is wrapped by residual, dropout and norm.

post   LayerNorm(x + Dropout(Sublayer(x)))         as published (section 3.1)
pre    x + Dropout(Sublayer(LayerNorm(x)))         easier to train deep; the stack then ends in one more norm
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from regard.nn.dropout import Dropout, Noise

NormKind = Literal["layer", "rms"]
NormOrder = Literal["post", "pre"]


def make_norm(kind: NormKind, width: int) -> nn.Module:
    """LayerNorm or RMSNorm over the width, with tensor2tensor's epsilon (the paper names none)."""
    return nn.LayerNorm(width, eps=1e-6) if kind == "layer" else nn.RMSNorm(width, eps=1e-6)


class Residual(nn.Module):
    """One sub-layer's wrapping."""

    def __init__(self, width: int, *, kind: NormKind, order: NormOrder, dropout: float, noise: Noise) -> None:
        super().__init__()
        self.norm = make_norm(kind, width)
        self.dropout = Dropout(dropout, noise)
        self.order = order

    def forward(self, x_ND: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.order == "pre":
            return self.dropout.add(x_ND, sublayer(self.norm(x_ND)))
        return self.norm(self.dropout.add(x_ND, sublayer(x_ND)))

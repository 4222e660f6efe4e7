"""Layer normalization, and residual connections around sub-layers.

post   LayerNorm(x + Dropout(Sublayer(x)))         as published (section 3.1)
pre    x + Dropout(Sublayer(LayerNorm(x)))         deep stacks train more easily; the stack ends in one more norm

Shapes: N tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import kernels
from regard.config.transformer import NORM_EPS, NormKind, NormOrder
from regard.data.ragged import Ragged
from regard.nn.dropout import Dropout, Noise
from regard.nn.sequences import Sequences


class Norm(nn.Module):
    """LayerNorm ("layer") or RMSNorm ("rms") over the width."""

    def __init__(self, kind: NormKind, width: int, *, eps: float = NORM_EPS) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if kind == "layer" else None

    def forward(self, x: Sequences) -> Sequences:
        """Return the normalized x, in its form: a `Ragged`, or any tensor [..., D]."""
        if isinstance(x, Ragged):
            return Ragged(self._rows(x.values), x.layout)
        return self._rows(x) if x.dim() == 2 else self._rows(x.reshape(-1, x.size(-1))).view(x.shape)

    def _rows(self, x_ND: Tensor) -> Tensor:
        if kernels.usable(x_ND):
            from regard.kernels.residual import norm

            return norm(x_ND, self.weight, self.bias, eps=self.eps)
        if x_ND.dtype != self.weight.dtype:
            return self._rows(x_ND.to(self.weight.dtype)).to(x_ND.dtype)
        if self.bias is None:
            return F.rms_norm(x_ND, self.weight.shape, self.weight, self.eps)
        return torch.layer_norm(x_ND, self.weight.shape, self.weight, self.bias, self.eps)

    def of_sum(self, x_ND: Tensor, branch_ND: Tensor, dropout: Dropout) -> Tensor:
        """Return the norm of x + Dropout(branch). The memory of the branch may be overwritten."""
        if kernels.usable(x_ND):
            from regard.kernels.residual import add_norm

            drop = dropout.draw(x_ND.device) if dropout.active else None
            return add_norm(x_ND, branch_ND, self.weight, self.bias, eps=self.eps, drop=drop)
        return self(dropout.add(x_ND, branch_ND))


class Residual(nn.Module):
    """The residual connection, dropout and norm around one sub-layer."""

    def __init__(
        self,
        width: int,
        *,
        kind: NormKind,
        order: NormOrder,
        dropout: float,
        noise: Noise | None = None,
        eps: float = NORM_EPS,
    ) -> None:
        super().__init__()
        self.norm = Norm(kind, width, eps=eps)
        self.dropout = Dropout(dropout, noise)
        self.order = order

    def forward(self, x_ND: Tensor, sublayer: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        """Return the sub-layer's output, wrapped. `sublayer` returns its output and its input (see `Linear.and_input`)."""
        if self.order == "pre":
            branch_ND, _ = sublayer(self.norm(x_ND))
            return self.dropout.add(x_ND, branch_ND)
        branch_ND, x_ND = sublayer(x_ND)
        return self.norm.of_sum(x_ND, branch_ND, self.dropout)

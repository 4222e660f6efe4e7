"""Convolution over flat batches: a token sees its neighbours, and zeros beyond either end of its own sentence.

Shapes: N tokens, D width in, F width out, R rows in search, W previous inputs that a step needs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.data.ragged import Layout
from regard.nn.linear import Linear


class Convolution(Linear):
    """A convolution with `kernel` taps, `dilation` tokens apart: centred, or causal (previous tokens only)."""

    def __init__(
        self, width_in: int, width_out: int, kernel: int, *, causal: bool, dilation: int = 1, bias: bool = True
    ) -> None:
        super().__init__(kernel * width_in, [width_out], bias=bias)
        self.reach = (kernel - 1) * dilation
        first = self.reach if causal else self.reach // 2
        self.offsets = [first - tap * dilation for tap in range(kernel)]  # distance of each tap, backwards
        self.width_in, self.dilation = width_in, dilation

    def forward(self, x_ND: Tensor, layout: Layout) -> Tensor:  # type: ignore[override]
        return super().forward(torch.cat([shift(x_ND, layout, offset) for offset in self.offsets], dim=-1))

    def start(self, num_rows: int) -> Tensor:
        """Return the inputs before the first token, which are zeros: [R, W, D]."""
        return self.weight.new_zeros(num_rows, self.reach, self.width_in)

    def step(self, x_RD: Tensor, recent_RWD: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output for one token per row, [R, F], and the previous inputs of the next step. Causal only."""
        seen = torch.cat([recent_RWD, x_RD[:, None]], dim=1)
        return super().forward(seen[:, :: self.dilation].flatten(1)), seen[:, 1:]


def shift(x_ND: Tensor, layout: Layout, by: int) -> Tensor:
    """Replace each token by the one `by` places before it in its sentence, or by zeros where there is none."""
    if by == 0:
        return x_ND
    return x_ND.roll(by, dims=0).masked_fill(layout.alone(by)[:, None], 0.0)

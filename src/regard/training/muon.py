"""Muon (Jordan et al. 2024) on the matrices of hidden layers, AdamW on everything else.

The momentum of a matrix is made nearly orthogonal, all its singular values moved towards 1, by a few Newton-Schulz
iterations, matrices of one shape together. The update is scaled to the size of an AdamW update (Liu et al. 2025), so that
one learning rate serves both. Matrices that lie side by side in one weight (queries, keys and values) are taken apart first.

Shapes: S matrices of one shape, R rows, C columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from regard.nn.linear import Linear
from regard.training.adam import Adam

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic a·x + b·x³ + c·x⁵ that pulls singular values to about 1
ITERATIONS = 5


def orthogonalize(matrices_SRC: Tensor) -> Tensor:
    """Each matrix with its singular values near 1; in bfloat16 on a GPU, where it is enough, in float32 on a CPU."""
    x = matrices_SRC.bfloat16() if matrices_SRC.is_cuda else matrices_SRC.float()
    tall = x.size(1) > x.size(2)
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).to(matrices_SRC.dtype)


class Muon:
    """An optimizer of two halves with the manners of one."""

    def __init__(
        self, model: nn.Module, *, momentum: float, betas: tuple[float, float], eps: float, weight_decay: float
    ) -> None:
        self.blocks = dict(_hidden_matrices(model))
        rest = [one for one in model.parameters() if one not in self.blocks]
        self.adam = Adam(rest, betas=betas, eps=eps, weight_decay=weight_decay, decoupled=True)
        self.rate, self.state = self.adam.rate, self.adam.state
        self.momentum, self.weight_decay = momentum, weight_decay

    def forget_gradients(self) -> None:
        self.adam.forget_gradients()
        for parameter in self.blocks:
            parameter.grad = None

    @torch.no_grad()
    def step(self, *, excess: Tensor | None, skip: Tensor) -> None:
        """Changes the weights by their gradients divided by `excess`; nothing where `skip` is 1."""
        self.adam.step(excess=excess, skip=skip)
        moved = [one for one in self.blocks if one.grad is not None]
        rate = self.rate * (1 - skip)
        for parameter, direction in zip(moved, self._directions(moved, excess, skip), strict=True):
            parameter.mul_(1 - rate * self.weight_decay).sub_(direction * rate)

    def _directions(self, parameters: list[Tensor], excess: Tensor | None, skip: Tensor) -> list[Tensor]:
        """The orthogonalized momentum of each weight, at the size of an AdamW update."""
        by_shape: defaultdict[tuple[int, int], list[tuple[int, Tensor]]] = defaultdict(list)
        for index, parameter in enumerate(parameters):
            ahead = self._momentum_of(parameter, excess, skip)
            for block in ahead.split(self.blocks[parameter]):
                by_shape[block.size(0), block.size(1)].append((index, block))
        parts: list[list[Tensor]] = [[] for _ in parameters]
        for (rows, columns), blocks in by_shape.items():
            scale = 0.2 * max(rows, columns) ** 0.5
            for (index, _), block in zip(blocks, orthogonalize(torch.stack([one for _, one in blocks])), strict=True):
                parts[index].append(block * scale)
        return [torch.cat(blocks) if len(blocks) > 1 else blocks[0] for blocks in parts]

    def _momentum_of(self, parameter: Tensor, excess: Tensor | None, skip: Tensor) -> Tensor:
        """The momentum with this gradient in it, looked at one step ahead (Nesterov)."""
        gradient = parameter.grad
        assert gradient is not None
        if excess is not None:
            gradient = gradient / excess
        gradient = gradient.nan_to_num(0.0, 0.0, 0.0)  # of a step that is skipped
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"].lerp_(gradient, (1 - self.momentum) * (1 - skip))
        return gradient.lerp(momentum, self.momentum)


def _hidden_matrices(model: nn.Module) -> Iterator[tuple[Tensor, list[int]]]:
    """The weight of every linear layer, and the rows of the matrices that lie in it."""
    for module in model.modules():
        if isinstance(module, Linear):
            yield module.weight, module.widths_out

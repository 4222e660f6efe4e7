"""Muon (Jordan et al. 2024) for the matrices of hidden layers, AdamW for all other weights.

A few Newton-Schulz iterations make the momentum of a matrix nearly orthogonal: all its singular values move towards 1.
Matrices of equal shape are computed together. The update is scaled to the size of an AdamW update (Liu et al. 2025), so that
both use the same learning rate. A weight that holds several matrices (queries, keys and values) is split into them first.

Shapes: S matrices of one shape, R rows, C columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from regard.nn.linear import Linear
from regard.training.adam import CapturableOptimizer, adam_options, adam_update

# Of the quintic a·x + b·x³ + c·x⁵, which moves singular values to about 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


def orthogonalize(matrices_SRC: Tensor) -> Tensor:
    """Return each matrix with its singular values near 1. Computes in bfloat16 on a GPU, in float32 on a CPU."""
    x = matrices_SRC.bfloat16() if matrices_SRC.is_cuda else matrices_SRC.float()
    tall = x.size(1) > x.size(2)
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).to(matrices_SRC.dtype)


class Muon(CapturableOptimizer):
    """Muon and AdamW in one optimizer: the first parameter group is AdamW's, the second one Muon's."""

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: float = 1e-3,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
        weight_decay: float = 0.0,
    ) -> None:
        self.blocks = dict(_hidden_matrices(model))
        others = [parameter for parameter in model.parameters() if parameter not in self.blocks]
        options = adam_options(betas=betas, eps=eps, weight_decay=weight_decay, decoupled=True)
        groups = [{"params": others, **options}, {"params": list(self.blocks), "momentum": momentum}]
        rate = torch.tensor(lr, device=next(model.parameters()).device)
        super().__init__(groups, {"lr": rate, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: None = None, *, excess: Tensor | None = None, skip: Tensor | None = None
    ) -> None:
        of_adam, of_muon = self.param_groups
        skip = torch.zeros_like(of_muon["lr"]) if skip is None else skip
        adam_update(of_adam, self.state, excess=excess, skip=skip)
        updated = [parameter for parameter in of_muon["params"] if parameter.grad is not None]
        rate = of_muon["lr"] * (1 - skip)
        momenta = [self._momentum(parameter, of_muon["momentum"], excess, skip) for parameter in updated]
        for parameter, direction in zip(updated, self._directions(updated, momenta), strict=True):
            parameter.mul_(1 - rate * of_muon["weight_decay"]).sub_(direction * rate)

    def _directions(self, parameters: list[Tensor], momenta: list[Tensor]) -> list[Tensor]:
        """Return the orthogonalized momentum of each weight, scaled to the size of an AdamW update."""
        by_shape: defaultdict[tuple[int, int], list[tuple[int, Tensor]]] = defaultdict(list)
        for index, (parameter, momentum) in enumerate(zip(parameters, momenta, strict=True)):
            for block in momentum.split(self.blocks[parameter]):
                by_shape[block.size(0), block.size(1)].append((index, block))
        parts: list[list[Tensor]] = [[] for _ in parameters]
        for (rows, columns), blocks in by_shape.items():
            scale = 0.2 * max(rows, columns) ** 0.5
            for (index, _), block in zip(blocks, orthogonalize(torch.stack([one for _, one in blocks])), strict=True):
                parts[index].append(block * scale)
        return [torch.cat(blocks) if len(blocks) > 1 else blocks[0] for blocks in parts]

    def _momentum(self, parameter: Tensor, decay: float, excess: Tensor | None, skip: Tensor) -> Tensor:
        """Add a gradient to the momentum, and return the momentum one step ahead (Nesterov)."""
        gradient = parameter.grad
        assert gradient is not None
        if excess is not None:
            gradient = gradient / excess
        # A skipped step has gradients that are not finite.
        gradient = gradient.nan_to_num(0.0, 0.0, 0.0)
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum: Tensor = state["momentum"].lerp_(gradient, (1 - decay) * (1 - skip))
        return gradient.lerp(momentum, decay)


def _hidden_matrices(model: nn.Module) -> Iterator[tuple[Tensor, list[int]]]:
    """Yield the weight of every linear layer, with the rows of each matrix in it."""
    for module in model.modules():
        if isinstance(module, Linear):
            yield module.weight, module.widths_out

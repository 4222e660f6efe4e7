"""Our optimizers: Adam (Kingma and Ba 2015), and Muon (Jordan et al. 2024) with AdamW for what is not a hidden matrix.

Adam uses PyTorch's fused kernel: one pass over all weights. In Muon a few Newton-Schulz iterations make the momentum of a
matrix nearly orthogonal: all its singular values move towards 1. Matrices of equal shape are computed together. The update
is scaled to the size of an AdamW update (Liu et al. 2025), so that both use the same learning rate. A weight that holds
several matrices (queries, keys and values) is split into them first.

Shapes: S matrices of one shape, R rows, C columns.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.nn.linear import Linear

State = defaultdict[Tensor, dict[str, Any]]
# Of the quintic a·x + b·x³ + c·x⁵, which moves singular values to about 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


class CapturableOptimizer(Optimizer):
    """An optimizer whose step reads nothing back from the device, so that a CUDA graph can capture it.

    The learning rate of each parameter group is a tensor on the device. Clipping and the check for non-finite gradients
    pass tensors to `step` too.
    """

    # PyTorch hides these methods from its compiler with a decorator. The first call of a decorated method imports the
    # compiler, which takes seconds, so our optimizers use the functions inside.
    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)

    @abstractmethod
    def step(  # type: ignore[override]
        self, closure: None = None, *, excess: Tensor | None = None, skip: Tensor | None = None
    ) -> None:
        """Update the weights by their gradients divided by `excess`. Change nothing if `skip` is 1."""


class Adam(CapturableOptimizer):
    """Adam, or AdamW if the weight decay is `decoupled` from the gradient (Loshchilov and Hutter 2019).

    With sharded weights each process updates its own part: no number depends on another.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
        weight_decay: float = 0.0,
        decoupled: bool = False,
    ) -> None:
        parameters = list(parameters)
        options = adam_options(betas=betas, eps=eps, weight_decay=weight_decay, decoupled=decoupled)
        super().__init__(parameters, {"lr": torch.tensor(lr, device=parameters[0].device), **options})

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: None = None, *, excess: Tensor | None = None, skip: Tensor | None = None
    ) -> None:
        for group in self.param_groups:
            adam_update(group, self.state, excess=excess, skip=skip)


def adam_options(*, betas: tuple[float, float], eps: float, weight_decay: float, decoupled: bool) -> dict[str, Any]:
    """Return the options of a parameter group that `adam_update` reads, besides its learning rate."""
    # "fused" makes `load_state_dict` put the number of steps on the device of the weights, where the kernel reads it.
    return {
        "betas": betas,
        "eps": eps,
        "weight_decay": weight_decay,
        "decoupled_weight_decay": decoupled,
        "fused": True,
    }


def adam_update(group: dict[str, Any], state: State, *, excess: Tensor | None, skip: Tensor | None) -> None:
    """Update the parameters of a group that have a gradient."""
    updated = [parameter for parameter in group["params"] if parameter.grad is not None]
    if not updated:
        return
    states = [_adam_state(parameter, state) for parameter in updated]
    steps = [one["step"] for one in states]
    torch._foreach_add_(steps, 1)
    kernel = torch._fused_adamw_ if group["decoupled_weight_decay"] else torch._fused_adam_
    kernel(
        [_local(parameter) for parameter in updated],
        [_local(parameter.grad) for parameter in updated],
        [_local(one["exp_avg"]) for one in states],
        [_local(one["exp_avg_sq"]) for one in states],
        [],
        steps,
        lr=group["lr"],
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        amsgrad=False,
        maximize=False,
        grad_scale=excess,
        found_inf=skip,
    )
    if skip is not None:
        torch._foreach_sub_(steps, [skip] * len(steps))


def _adam_state(parameter: Tensor, state: State) -> dict[str, Any]:
    own = state[parameter]
    if not own:
        own["step"] = torch.zeros((), device=parameter.device)
        own["exp_avg"], own["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
    return own


def _local(tensor: Tensor) -> Tensor:
    """Return this process's part of a sharded tensor, or the tensor itself. DTensor is not named: its import is slow."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def orthogonalize(matrices_SRC: Tensor) -> Tensor:
    """Return each matrix with its singular values near 1. Computes in bfloat16 on a GPU that has it, else in float32."""
    half = matrices_SRC.is_cuda and torch.cuda.is_bf16_supported(including_emulation=False)
    x = matrices_SRC.bfloat16() if half else matrices_SRC.float()
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
    """Yield the weight of every hidden linear layer, with the rows of each matrix in it."""
    for module in model.modules():
        if isinstance(module, Linear) and module.hidden:
            yield module.weight, module.widths_out

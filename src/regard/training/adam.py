"""The base class of our optimizers, and Adam (Kingma and Ba 2015) by PyTorch's fused kernel: one pass over all weights."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

State = defaultdict[Tensor, dict[str, Any]]


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

"""Adam (Kingma and Ba 2015), one pass over all weights by PyTorch's fused kernel.

`torch.optim` has it too, but its first step imports the compiler, which takes longer than going on with a run should.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor


class Adam:
    """Adam, or AdamW where the decay is `decoupled` from the gradient (Loshchilov and Hutter 2019).

    Of weights held in shards this process's part is changed: nothing here mixes one number with another.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        decoupled: bool,
    ) -> None:
        self.parameters = list(parameters)
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        self.kernel = torch._fused_adamw_ if decoupled else torch._fused_adam_
        self.rate = torch.zeros((), device=self.parameters[0].device)  # there, so that a recorded step can use it
        self.state: defaultdict[Tensor, dict[str, Tensor]] = defaultdict(dict)

    def forget_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, *, excess: Tensor | None, skip: Tensor) -> None:
        """Changes the weights by their gradients divided by `excess`; nothing where `skip` is 1."""
        moved = [one for one in self.parameters if one.grad is not None]
        if not moved:
            return
        states = [self._state_of(one) for one in moved]
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        self.kernel(
            [_local(one) for one in moved],
            [_local(one.grad) for one in moved if one.grad is not None],
            [_local(state["exp_avg"]) for state in states],
            [_local(state["exp_avg_sq"]) for state in states],
            [],
            steps,
            lr=self.rate,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=self.weight_decay,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
            grad_scale=excess,
            found_inf=skip,
        )
        torch._foreach_sub_(steps, [skip] * len(steps))

    def _state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return state


def _local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor held in shards (a DTensor, whose import is slow); else all of it."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part

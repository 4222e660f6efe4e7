"""Gradients on a CPU by two threads, each on its own batches.

Two matrix products at the same time, on one core each, take less time than one after the other on both cores. So do all
other operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import torch
from torch import Tensor

from regard.data.batch import Batch
from regard.models.base import Model

Numbered = tuple[int, Batch]  # a micro-batch, and its number among those of the step, which seeds its dropout
LossAndGradients = tuple[Tensor, Sequence[Tensor | None]]  # a summed loss, and the gradient of each parameter

_SECOND_THREAD = ThreadPoolExecutor(1, "gradients")  # started when it is first used


def backward_in_two_threads(model: Model, loss: Callable[[Batch], Tensor], batches: Sequence[Numbered]) -> Tensor:
    """Add the gradient of the summed loss of all batches, and return this loss. The threads take batches in turn.

    Sums are added in a fixed order, so the result does not depend on which thread is faster.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def sum_gradients(own: Sequence[Numbered], threads: int) -> LossAndGradients:
        # This sets the threads of matrix products in the calling thread.
        torch.set_num_threads(threads)
        total = torch.zeros(())
        sums: Sequence[Tensor | None] | None = None
        for number, batch in own:
            model.noise.part(number)
            one = loss(batch)
            gradients = torch.autograd.grad(one, parameters, allow_unused=True)
            total, sums = total + one.detach(), gradients if sums is None else _add_all(sums, gradients)
        assert sums is not None
        return total, sums

    threads = torch.get_num_threads()
    second = _SECOND_THREAD.submit(sum_gradients, batches[1::2], threads // 2)
    try:
        total, sums = sum_gradients(batches[::2], threads - threads // 2)
    finally:
        wait([second])
        torch.set_num_threads(threads)
    second_total, second_sums = second.result()
    for parameter, gradient in zip(parameters, _add_all(sums, second_sums), strict=True):
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    return total + second_total


def _add_all(left: Sequence[Tensor | None], right: Sequence[Tensor | None]) -> list[Tensor | None]:
    return [_add(one, other) for one, other in zip(left, right, strict=True)]


def _add(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    """Return the sum in new contiguous memory; None counts as zero.

    Gradients of autograd may have other strides, and two parameters may share one.
    """
    if left is None or right is None:
        only = right if left is None else left
        return None if only is None else only.clone(memory_format=torch.contiguous_format)
    return (left + right).contiguous()

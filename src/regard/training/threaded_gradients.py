"""Gradients on a CPU by two threads, each on batches of its own.

Two products on one core each take less time than one after the other on both, and so does all that is not a product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import torch
from torch import Tensor

from regard.data.batch import Batch
from regard.models.base import Model

Numbered = tuple[int, Batch]  # a micro-batch, and its number among all of the step, for its noise
LossAndGradients = tuple[Tensor, Sequence[Tensor | None]]  # a summed loss, and the gradients of the parameters

_OTHER = ThreadPoolExecutor(1, "gradients")  # the second thread, begun when it is first needed


def in_two_threads(model: Model, loss: Callable[[Batch], Tensor], batches: Sequence[Numbered]) -> Tensor:
    """Adds the gradient of the batches' summed loss, which comes back; the threads take them in turn.

    Their sums are added in a fixed order: it does not matter who is done first.
    """
    parameters = [one for one in model.parameters() if one.requires_grad]

    def sum_up(own: Sequence[Numbered], threads: int) -> LossAndGradients:
        torch.set_num_threads(threads)  # of this thread's products
        total = torch.zeros(())
        sums: Sequence[Tensor | None] | None = None
        for number, batch in own:
            model.noise.part(number)
            one = loss(batch)
            found = torch.autograd.grad(one, parameters, allow_unused=True)
            total, sums = total + one.detach(), found if sums is None else _added(sums, found)
        assert sums is not None
        return total, sums

    threads = torch.get_num_threads()
    theirs = _OTHER.submit(sum_up, batches[1::2], threads // 2)
    try:
        total, sums = sum_up(batches[::2], threads - threads // 2)
    finally:
        wait([theirs])
        torch.set_num_threads(threads)
    their_total, their_sums = theirs.result()
    for parameter, gradient in zip(parameters, _added(sums, their_sums), strict=True):
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    return total + their_total


def _added(ours: Sequence[Tensor | None], theirs: Sequence[Tensor | None]) -> list[Tensor | None]:
    return [_sum(one, other) for one, other in zip(ours, theirs, strict=True)]


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """In memory of its own, row by row: what autograd gives may lie otherwise, or twice. None is nothing."""
    if one is None or other is None:
        only = other if one is None else one
        return None if only is None else only.clone(memory_format=torch.contiguous_format)
    return (one + other).contiguous()

"""Gradients on a CPU by two threads, each on batches of its own.

Two products on one core each take less time than one after the other on both, and so does all that is not a product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import torch
from torch import Tensor

from regard.data.loader import Batch
from regard.models.base import Model

Numbered = tuple[int, Batch]  # a micro-batch, and its number among all of the step, for its noise
Found = tuple[Tensor, list[Tensor | None]]  # a summed loss, and the gradients of the parameters

_OTHER = ThreadPoolExecutor(1, "gradients")  # the second thread, begun when it is first needed


def in_two_threads(model: Model, loss: Callable[[Batch], Tensor], batches: Sequence[Numbered]) -> Tensor:
    """Adds the gradient of the batches' summed loss, which comes back; the threads take them in turn.

    Their sums are added in a fixed order: it does not matter who is done first.
    """
    parameters = [one for one in model.parameters() if one.requires_grad]

    def sum_up(own: Sequence[Numbered]) -> Found:
        total = torch.zeros(())
        sums: list[Tensor | None] = [None] * len(parameters)
        for number, batch in own:
            model.noise.part(number)
            one = loss(batch)
            found = torch.autograd.grad(one, parameters, allow_unused=True)
            total, sums = total + one.detach(), _added(sums, found)
        return total, sums

    def confined(own: Sequence[Numbered]) -> Found:
        torch.set_num_threads(threads // 2)  # of this thread's products
        return sum_up(own)

    threads = torch.get_num_threads()
    theirs = _OTHER.submit(confined, batches[1::2])
    try:
        total, sums = confined(batches[::2])
    finally:
        torch.set_num_threads(threads)
        wait([theirs])
    their_total, their_sums = theirs.result()
    before = [one.grad for one in parameters]
    for parameter, gradient in zip(parameters, _added(before, _added(sums, their_sums)), strict=True):
        parameter.grad = gradient
    return total + their_total


def _added(sums: Sequence[Tensor | None], more: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The first ones with the others added, in their memory; None is nothing."""
    both = [(one, other) for one, other in zip(sums, more, strict=True) if one is not None and other is not None]
    if both:
        torch._foreach_add_(*map(list, zip(*both, strict=True)))
    return [other if one is None else one for one, other in zip(sums, more, strict=True)]

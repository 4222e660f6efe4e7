"""The gradients of a step, computed by several processes or by two threads.

Processes have a copy of the model each (DDP), or shards of its weights (FSDP2). Both are PyTorch's, and both wrap the model
itself: its `forward` computes the loss of a batch. On a CPU a single process uses two threads: two matrix products at the
same time, on one core each, take less time than one after the other on both cores. So do all other operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regard import kernels
from regard.data.batch import Batch
from regard.errors import ConfigError
from regard.models.base import Model
from regard.nn.device import autocast, precast
from regard.training.adapters import LowRankAdapters, trained_parameters
from regard.training.loss_scale import LossScale
from regard.training.world import ALONE, World

Parallel = Literal["copies", "shards"]
Numbered = tuple[int, Batch]  # a micro-batch, and its number among those of the step, which seeds its dropout
LossAndGradients = tuple[Tensor, Sequence[Tensor | None]]  # a summed loss, and the gradient of each parameter

_SECOND_THREAD = ThreadPoolExecutor(1, "gradients")  # started when it is first used


class DistributedModel:
    """A model whose loss and gradients all processes of a world compute together, each on its own batches."""

    def __init__(
        self,
        model: Model,
        *,
        smoothing: float,
        world: World = ALONE,
        parallel: Parallel = "copies",
        adapters: LowRankAdapters | None = None,
        loss_scale: LossScale | None = None,
    ) -> None:
        self.model, self.world, self.smoothing = model, world, smoothing
        self.adapters, self.loss_scale = adapters, loss_scale
        self.sharded = world.size > 1 and parallel == "shards"
        if self.sharded and adapters is not None:
            raise ConfigError(
                "train.adapt=lora needs complete matrices; use train.parallel=copies, or train.adapt=bias"
            )
        self.wrapped: nn.Module = model
        if self.sharded:
            from regard.training.fsdp import shard

            shard(self.wrapped)
        elif world.size > 1:
            self.wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)

    def trained_parameters(self) -> dict[str, nn.Parameter]:
        """Return what the optimizer updates, by name."""
        return trained_parameters(self.model, self.adapters)

    def loss(self, batch: Batch) -> Tensor:
        """Return the summed loss of a batch, with label smoothing."""
        total: Tensor = self.wrapped(batch, smoothing=self.smoothing)
        return total

    def backward(self, batches: Sequence[Numbered], tokens: Tensor, *, precision: torch.dtype) -> Tensor:
        """Add the gradient of the mean loss, times the loss scale, and return the summed loss of these batches.

        `tokens` counts the labels of all batches of all processes. Gradients are averaged over processes after the last
        batch.
        """
        # Dividing by less is the same as multiplying by the scale.
        divisor = tokens if self.loss_scale is None else tokens / self.loss_scale.scale
        on_cpu = self.world.size == 1 and tokens.device.type == "cpu" and not kernels.interpreted()
        if on_cpu and precision == torch.float32 and min(torch.get_num_threads(), len(batches)) > 1:
            return backward_in_two_threads(self.model, lambda batch: self.loss(batch) / divisor, batches) * divisor
        total = torch.zeros((), device=tokens.device)
        for count, (number, batch) in enumerate(batches, start=1):
            self.model.noise.part(number)
            with self._synchronized(last=count == len(batches)):
                with autocast(tokens.device, precision), precast(self._matmul_weights(), precision):
                    loss = self.loss(batch)
                # Synchronization takes the mean over processes, so the sum is the mean times their number.
                (loss * (self.world.size / divisor)).backward()
            total += loss.detach()
        return total

    def _matmul_weights(self) -> list[Tensor]:
        """Return the weights of matrix products; none if this process has only shards of them."""
        if self.sharded:
            return []
        layers = [module for module in self.model.modules() if isinstance(module, nn.Linear)]
        weights: list[Tensor] = [parameter for layer in layers for parameter in layer.parameters()]
        if self.model.output_weight is not None:
            weights.append(self.model.output_weight)
        return weights

    @contextmanager
    def _synchronized(self, last: bool) -> Iterator[None]:
        """Average gradients over processes in the backward pass of the last batch, and only there."""
        if isinstance(self.wrapped, DistributedDataParallel) and not last:
            with self.wrapped.no_sync():
                yield
            return
        if self.sharded:
            from regard.training.fsdp import synchronize_gradients

            synchronize_gradients(self.wrapped, last)
        yield

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Gather all weights in every process, so that any method of the model can be called in this context."""
        if not self.sharded:
            yield
            return
        from regard.training.fsdp import gathered

        with gathered(self.wrapped):
            yield

    def full_tensor(self, tensor: Tensor) -> Tensor:
        """Return a tensor, gathered if it is sharded. All processes must call this."""
        if not self.sharded:
            return tensor
        from regard.training.fsdp import full_tensor

        return full_tensor(tensor)

    def distribute(self, value: Tensor, like: Tensor) -> Tensor:
        """Return a full tensor on the device of `like`, and sharded as `like` is."""
        if not self.sharded:
            return value.to(like.device)
        from regard.training.fsdp import distribute

        return distribute(value, like)


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

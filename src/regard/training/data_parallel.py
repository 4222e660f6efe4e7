"""A model trained by several processes: with a copy of the model each (DDP), or with shards of its weights (FSDP2).

Both are PyTorch's, and both wrap the model itself: its `forward` computes the loss of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regard import kernels
from regard.data.batch import Batch
from regard.models.base import Model
from regard.nn.device import autocast, precast
from regard.training.threaded_gradients import Numbered, backward_in_two_threads
from regard.training.world import ALONE, World

Parallel = Literal["copies", "shards"]


class DistributedModel:
    """A model whose loss and gradients all processes of a world compute together, each on its own batches."""

    def __init__(self, model: Model, *, smoothing: float, world: World = ALONE, parallel: Parallel = "copies") -> None:
        self.model, self.world, self.smoothing = model, world, smoothing
        self.sharded = world.size > 1 and parallel == "shards"
        self.wrapped: nn.Module = model
        if self.sharded:
            from regard.training.fsdp import shard

            shard(self.wrapped)
        elif world.size > 1:
            self.wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)

    def loss(self, batch: Batch) -> Tensor:
        """Return the summed loss of a batch, with label smoothing."""
        total: Tensor = self.wrapped(batch, smoothing=self.smoothing)
        return total

    def backward(self, batches: Sequence[Numbered], tokens: Tensor, *, precision: torch.dtype) -> Tensor:
        """Add the gradient of the mean loss, and return the summed loss of these batches.

        `tokens` counts the labels of all batches of all processes. Gradients are averaged over processes after the last
        batch.
        """
        on_cpu = self.world.size == 1 and tokens.device.type == "cpu" and not kernels.interpreted()
        if on_cpu and precision == torch.float32 and min(torch.get_num_threads(), len(batches)) > 1:
            return backward_in_two_threads(self.model, lambda batch: self.loss(batch) / tokens, batches) * tokens
        total = torch.zeros((), device=tokens.device)
        for count, (number, batch) in enumerate(batches, start=1):
            self.model.noise.part(number)
            with self._synchronized(last=count == len(batches)):
                with autocast(tokens.device, precision), precast(self._matmul_weights(), precision):
                    loss = self.loss(batch)
                # Synchronization takes the mean over processes, so the sum is the mean times their number.
                (loss * (self.world.size / tokens)).backward()
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

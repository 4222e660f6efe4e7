"""A model spread over several processes: copies whose gradients are averaged (DDP), or shards of its weights (FSDP2).

Both are PyTorch's. They wrap the call from a batch to its loss, which is a model's `forward`.
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
from regard.kernels.weight_cast import rounded
from regard.models.base import Model
from regard.nn.device import autocast
from regard.training.threaded_gradients import Numbered, in_two_threads
from regard.training.world import ALONE, World

Parallel = Literal["copies", "shards"]


class DistributedModel:
    """The loss of a model, computed by all processes of a world, each on batches of its own."""

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
        """Return the summed loss of a batch, smoothed as in training."""
        total: Tensor = self.wrapped(batch, smoothing=self.smoothing)
        return total

    def backward(self, batches: Sequence[Numbered], tokens: Tensor, *, precision: torch.dtype) -> Tensor:
        """Adds the gradient of the batches' share of the mean loss; shared with the others after the last one.

        `tokens` are those of all batches of all processes. The summed loss comes back.
        """
        alone = self.world.size == 1 and tokens.device.type == "cpu" and not kernels.interpreted()
        if alone and precision == torch.float32 and min(torch.get_num_threads(), len(batches)) > 1:
            return in_two_threads(self.model, lambda batch: self.loss(batch) / tokens, batches) * tokens
        total = torch.zeros((), device=tokens.device)
        for place, (number, batch) in enumerate(batches, start=1):
            self.model.noise.part(number)
            with self._sharing(last=place == len(batches)):
                with autocast(tokens.device, precision), rounded(self._in_products(), precision):
                    one = self.loss(batch)
                (one * (self.world.size / tokens)).backward()  # sharing takes the mean over processes
            total += one.detach()
        return total

    def _in_products(self) -> list[Tensor]:
        """The weights that are multiplied with, where this process holds them whole."""
        if self.sharded:
            return []
        layers = [module for module in self.model.modules() if isinstance(module, nn.Linear)]
        weights: list[Tensor] = [one for layer in layers for one in layer.parameters()]
        if self.model.output_weight is not None:
            weights.append(self.model.output_weight)
        return weights

    @contextmanager
    def _sharing(self, last: bool) -> Iterator[None]:
        if isinstance(self.wrapped, DistributedDataParallel) and not last:
            with self.wrapped.no_sync():
                yield
            return
        if self.sharded:
            from regard.training.fsdp import share_gradients

            share_gradients(self.wrapped, last)
        yield

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """A context in which the model's own methods can be called: every process holds all of its weights."""
        if not self.sharded:
            yield
            return
        from regard.training.fsdp import gathered

        with gathered(self.wrapped):
            yield

    def whole(self, tensor: Tensor) -> Tensor:
        """All of a tensor, where processes hold shards of it. Every process must ask."""
        if not self.sharded:
            return tensor
        from regard.training.fsdp import whole

        return whole(tensor)

    def placed(self, value: Tensor, like: Tensor) -> Tensor:
        """A whole tensor, spread as the other one is."""
        if not self.sharded:
            return value.to(like.device)
        from regard.training.fsdp import placed

        return placed(value, like)

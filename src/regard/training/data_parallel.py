"""A model spread over several processes: copies whose gradients are averaged (DDP), or shards of its weights (FSDP2).

Both are PyTorch's. They want one call from inputs to loss, so the model is wrapped in that call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regard import kernels
from regard.data.loader import Batch
from regard.models.base import Model
from regard.nn.device import autocast, precast
from regard.training.loss import sequence_loss
from regard.training.threaded_gradients import Numbered, in_two_threads
from regard.training.world import ALONE, World

Parallel = Literal["copies", "shards"]


class LossOf(nn.Module):
    """The summed loss of a model on a batch, as a module."""

    def __init__(self, model: Model, *, smoothing: float) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: Batch) -> Tensor:
        return sequence_loss(self.model, batch, smoothing=self.smoothing).total


class DistributedModel:
    """The loss of a model, computed by all processes of a world, each on batches of its own."""

    def __init__(self, model: Model, *, smoothing: float, world: World = ALONE, parallel: Parallel = "copies") -> None:
        self.model, self.world = model, world
        self.sharded = world.size > 1 and parallel == "shards"
        self.loss: nn.Module = LossOf(model, smoothing=smoothing)
        if self.sharded:
            from regard.training.fsdp import shard

            shard(self.loss)
        elif world.size > 1:
            self.loss = DistributedDataParallel(self.loss, gradient_as_bucket_view=True)

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
                with autocast(tokens.device, precision), precast(self._in_products(), precision):
                    one: Tensor = self.loss(batch)
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
        if isinstance(self.loss, DistributedDataParallel) and not last:
            with self.loss.no_sync():
                yield
            return
        if self.sharded:
            from regard.training.fsdp import share_gradients

            share_gradients(self.loss, last)
        yield

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """A context in which the model's own methods can be called: every process holds all of its weights."""
        if not self.sharded:
            yield
            return
        from regard.training.fsdp import gathered

        with gathered(self.loss):
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

"""A model spread over several processes: copies whose gradients are averaged (DDP), or shards of its weights (FSDP2).

Both are PyTorch's. They want one call from inputs to loss, so the model is wrapped in that call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from regard.data.loader import Batch
from regard.models.base import Seq2Seq
from regard.nn.stack import Stack
from regard.training.loss import sequence_loss
from regard.training.world import ALONE, World

Parallel = Literal["copies", "shards"]


class LossOf(nn.Module):
    """The summed loss of a model on a batch, as a module."""

    def __init__(self, model: Seq2Seq, *, smoothing: float) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: Batch) -> Tensor:
        return sequence_loss(self.model, batch, smoothing=self.smoothing).total


class Spread:
    """The loss of a model, computed by all processes of a world, each on batches of its own."""

    def __init__(
        self, model: Seq2Seq, *, smoothing: float, world: World = ALONE, parallel: Parallel = "copies"
    ) -> None:
        self.model, self.world = model, world
        self.sharded = world.size > 1 and parallel == "shards"
        loss = LossOf(model, smoothing=smoothing)
        self.loss: nn.Module = loss
        if self.sharded:
            for stack in [module for module in model.modules() if isinstance(module, Stack)]:
                for layer in stack:
                    fully_shard(layer)
            fully_shard(loss)
        elif world.size > 1:
            self.loss = DistributedDataParallel(loss, gradient_as_bucket_view=True)

    def backward(self, batch: Batch, tokens: Tensor | int, *, last: bool) -> Tensor:
        """Adds the gradient of the batch's share of the mean loss; shared with the others after the last one.

        `tokens` are those of all batches of all processes. The summed loss comes back.
        """
        with self._sharing(last):
            total: Tensor = self.loss(batch)
            (total * (self.world.size / tokens)).backward()  # sharing takes the mean over processes
        return total.detach()

    @contextmanager
    def _sharing(self, last: bool) -> Iterator[None]:
        if isinstance(self.loss, DistributedDataParallel) and not last:
            with self.loss.no_sync():
                yield
            return
        if self.sharded:
            assert isinstance(self.loss, FSDPModule)
            self.loss.set_requires_gradient_sync(last)
        yield

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """A context in which the model's own methods can be called: every process holds all of its weights."""
        shards = [module for module in self.loss.modules() if isinstance(module, FSDPModule)]
        for module in shards:
            module.set_reshard_after_forward(False)
            module.unshard()
        try:
            yield
        finally:
            for module in shards:
                module.reshard()
                module.set_reshard_after_forward(True)

    def whole(self, tensor: Tensor) -> Tensor:
        """All of a tensor, where processes hold shards of it. Every process must ask."""
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def placed(self, value: Tensor, like: Tensor) -> Tensor:
        """A whole tensor, spread as the other one is."""
        if isinstance(like, DTensor) and value.shape == like.shape:
            return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)
        return value.to(like.device)


def total_norm(gradients: list[Tensor]) -> Tensor:
    """The norm of all gradients together, whole on every process."""
    norm = nn.utils.get_total_norm(gradients)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm

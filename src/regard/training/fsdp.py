"""Weights sharded over processes by PyTorch's FSDP2. Imported only if it is used, because the import takes a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from regard.nn.layers import Stack


def shard(module: nn.Module) -> None:
    """Shard the weights of a module over all processes: each layer of a stack on its own, and the rest together."""
    for stack in [one for one in module.modules() if isinstance(one, Stack)]:
        for layer in stack:
            fully_shard(layer)
    fully_shard(module)


def synchronize_gradients(module: nn.Module, enabled: bool) -> None:
    """Set whether backward passes average gradients over processes."""
    assert isinstance(module, FSDPModule)
    module.set_requires_gradient_sync(enabled)


@contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Hold all weights in every process within this context."""
    shards = [one for one in module.modules() if isinstance(one, FSDPModule)]
    for one in shards:
        one.set_reshard_after_forward(False)
        one.unshard()
    try:
        yield
    finally:
        for one in shards:
            one.reshard()
            one.set_reshard_after_forward(True)


def full_tensor(tensor: Tensor) -> Tensor:
    """Return a tensor, gathered if it is sharded. All processes must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def distribute(value: Tensor, like: Tensor) -> Tensor:
    """Return a full tensor sharded as `like` is if it has the same shape, else on the same device."""
    if isinstance(like, DTensor) and value.shape == like.shape:
        return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)
    return value.to(like.device)

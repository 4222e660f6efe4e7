"""Weights held in shards, a part in every process (PyTorch's FSDP2). Imported only where asked for: it takes a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from regard.nn.layers import Stack


def shard(module: nn.Module) -> None:
    """Spreads the weights of a module over all processes: those of each layer together, the rest together."""
    for stack in [one for one in module.modules() if isinstance(one, Stack)]:
        for layer in stack:
            fully_shard(layer)
    fully_shard(module)


def share_gradients(module: nn.Module, yes: bool) -> None:
    """Whether the next backward pass ends in the mean of all processes' gradients."""
    assert isinstance(module, FSDPModule)
    module.set_requires_gradient_sync(yes)


@contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """A context in which every process holds all weights."""
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


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor. Every process must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def placed(value: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, spread as the other one is where it has its shape."""
    if isinstance(like, DTensor) and value.shape == like.shape:
        return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)
    return value.to(like.device)

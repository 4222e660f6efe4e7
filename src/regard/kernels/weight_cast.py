"""Weights in the precision of the products: all of a model rounded in one go, instead of each before its product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

_halves: dict[int, Tensor] = {}  # by the identity of the weight


@contextmanager
def rounded(weights: Sequence[Tensor], dtype: torch.dtype) -> Iterator[None]:
    """A context in which `half` knows these weights already."""
    wanted = {id(one): one for one in weights if one.is_cuda and one.dtype != dtype}
    copies = [torch.empty_like(one, dtype=dtype) for one in wanted.values()]
    if copies:
        with torch.no_grad():
            torch._foreach_copy_(copies, list(wanted.values()))
    _halves.update(zip(wanted, copies, strict=True))
    try:
        yield
    finally:
        _halves.clear()


def dtype_of_product(x: Tensor) -> torch.dtype:
    """In which products with this run here: autocast's, or its own."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def half(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight in this precision."""
    known = _halves.get(id(weight))
    return weight.to(dtype) if known is None else known

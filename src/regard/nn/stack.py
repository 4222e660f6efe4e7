"""Layers of one kind, one above the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from torch import nn

Layer = TypeVar("Layer", bound=nn.Module)


class Stack(nn.ModuleList, Generic[Layer]):
    """A ModuleList that knows what it holds."""

    def __iter__(self) -> Iterator[Layer]:
        return super().__iter__()  # type: ignore[return-value]

"""Split a matrix by columns without a copy, also in the backward pass.

Queries, keys and values are columns of one product. In PyTorch's backward pass of `split`, their three gradients are copied
into one matrix. Here the attention kernel writes them into one matrix from the start (`empty_columns_like`), and the
backward pass of `split_columns` recognizes that and returns a view.

Shapes: N tokens, H heads, W width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def split_columns(x: Tensor, widths: Sequence[int]) -> tuple[Tensor, ...]:
    """Return views of consecutive columns of x, with these widths."""
    if not torch.is_grad_enabled():
        return x.split_with_sizes(list(widths), dim=-1)
    return _Split.apply(x, list(widths))


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, widths: list[int]) -> tuple[Tensor, ...]:
        return x.split(widths, dim=-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        first, rows = gradients[0], gradients[0].size(0)
        total = sum(one.size(1) for one in gradients)
        if _are_columns_of_one_matrix(gradients, total):
            return first.as_strided((rows, total), (total, 1)), None
        return torch.cat(gradients, dim=-1), None


def empty_columns_like(*tensors: Tensor) -> list[Tensor]:
    """Return empty tensors of these shapes, each [N, H, W]. They are columns of one matrix if the given ones are."""
    results: list[Tensor] = []
    for begin in range(len(tensors)):  # the longest run of neighbours at the end shares a matrix; the others do not
        together = tensors[begin:]
        total = sum(one.size(1) * one.size(2) for one in together)
        if begin < len(tensors) - 1 and _are_columns_of_one_matrix(together, total):
            rows, first = together[0].size(0), together[0]
            matrix = first.new_empty(rows, total)
            parts = matrix.split([one.size(1) * one.size(2) for one in together], dim=-1)
            return [*results, *(part.unflatten(-1, one.shape[1:]) for part, one in zip(parts, together, strict=True))]
        results.append(torch.empty(tensors[begin].shape, dtype=tensors[begin].dtype, device=tensors[begin].device))
    return results


def _are_columns_of_one_matrix(tensors: Sequence[Tensor], total: int) -> bool:
    """Return whether these are all columns of one matrix of `total` columns, in order."""
    place = tensors[0].storage_offset()
    storage = tensors[0].untyped_storage().data_ptr()
    for one in tensors:
        width = one[0].numel()
        if one.untyped_storage().data_ptr() != storage or one.stride(0) != total or one.storage_offset() != place:
            return False
        if not one[0].is_contiguous():
            return False
        place += width
    return place - tensors[0].storage_offset() == total

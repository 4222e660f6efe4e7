"""The forms in which modules accept a batch of sequences, and the flat form on which they compute.

ragged   a `Ragged`: values [N, D] and the layout of the sentences
padded   a tensor [B, T, D] and a boolean mask [B, T], True for real tokens; no mask if all are real
flat     a tensor [N, D] and its layout

A module returns its result in the form of its input. In a padded result, padding is zero and passes no gradient.
Padding may be anywhere in a row: positions count real tokens only.

Shapes: B sentences, T positions of a padded batch, N real tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from regard.data.ragged import Layout, Ragged
from regard.errors import DataError
from regard.messages import counted

Sequences = Ragged | Tensor


class Tokens(NamedTuple):
    """The real tokens of a batch."""

    values: Tensor  # [N, ...]
    layout: Layout
    restore: Callable[[Tensor], Sequences]  # from [N, ...] to the form that the batch was given in


def flatten(x: Sequences, mask: Tensor | Layout | None = None) -> Tokens:
    """Return the real tokens of a batch. `mask` is the boolean mask of a padded batch, or the layout of a flat one."""
    if isinstance(x, Ragged):
        if isinstance(mask, Tensor):
            raise DataError("a Ragged batch has no padding, but a boolean mask was given; leave out the mask")
        layout = x.layout
        return Tokens(x.values, layout, lambda values: Ragged(values, layout))
    if isinstance(mask, Layout):
        if x.size(0) != mask.total:
            raise DataError(
                f"a tensor of shape {list(x.shape)} was given with a layout of {counted(mask.total, 'token')}"
            )
        return Tokens(x, mask, lambda values: values)
    if x.dim() < 3:
        raise DataError(
            f"a tensor of shape {list(x.shape)} is not a padded batch; give [B, T, D] and a mask, "
            "or [N, D] and its layout (for attention, an AttentionMask)"
        )
    return _flatten_padded(x, mask)


def _flatten_padded(x: Tensor, mask: Tensor | None) -> Tokens:
    B, T = x.shape[:2]
    if mask is not None and (mask.dtype != torch.bool or mask.shape != (B, T)):
        raise DataError(
            f"a mask of shape {list(mask.shape)} and type {mask.dtype} was given for a batch of shape {list(x.shape)}; "
            f"give a boolean mask of shape {[B, T]}, True for real tokens"
        )
    layout = Layout([T] * B if mask is None else mask.sum(dim=1).tolist(), x.device)
    if mask is None or layout.total == B * T:
        return Tokens(x.flatten(0, 1), layout, lambda values: values.unflatten(0, (B, T)))
    places_N = mask.flatten().nonzero()[:, 0]
    return Tokens(x.flatten(0, 1).index_select(0, places_N), layout, lambda values: _spread(values, places_N, B, T))


def _spread(values: Tensor, places_N: Tensor, B: int, T: int) -> Tensor:
    """Return [B, T, ...] with the values at these places of the flattened batch, and zeros elsewhere."""
    return values.new_zeros(B * T, *values.shape[1:]).index_copy(0, places_N, values).unflatten(0, (B, T))


def to_ragged(x: Tensor, mask: Tensor | None = None) -> Ragged:
    """Return a padded batch, [B, T] or [B, T, ...], without its padding. The mask, [B, T], is True for real tokens."""
    tokens = _flatten_padded(x, mask)
    return Ragged(tokens.values, tokens.layout)


def to_padded(x: Ragged) -> tuple[Tensor, Tensor]:
    """Return a batch with zeros behind each sentence, [B, T, ...], and its mask, [B, T]."""
    layout = x.layout
    return _spread(x.values, layout.slots, layout.num_sentences, layout.longest), layout.mask

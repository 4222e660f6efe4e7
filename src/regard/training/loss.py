"""A loss as (sum, count); division happens once, in the trainer."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from regard.data.loader import Batch
from regard.models.base import Model


class LossSum(NamedTuple):
    """Summed loss, and the number of target tokens it was summed over."""

    total: Tensor
    tokens: int


def sequence_loss(model: Model, batch: Batch, *, smoothing: float) -> LossSum:
    """The model's loss on a batch."""
    return LossSum(model.loss(batch, smoothing=smoothing), batch.num_tokens)

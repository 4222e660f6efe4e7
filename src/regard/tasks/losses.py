"""The loss of a model over a whole set of batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from regard.data.batch import Batch
from regard.models.base import Model


@torch.inference_mode()
def dev_loss(model: Model, batches: Sequence[Batch], device: torch.device) -> tuple[float, int]:
    """Return the summed loss in nats, unsmoothed, and the number of labels: exp of their ratio is the perplexity."""
    total, tokens = 0.0, 0
    for batch in batches:
        total, tokens = total + model(batch.to(device)).item(), tokens + batch.num_tokens
    return total, tokens

"""What a run counts: how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


@dataclass
class Counters:
    """What a run has done so far, as far as it can be counted."""

    step: Count = 0
    epoch: Count = 0
    block: Count = 0
    batch: Count = 0
    batching: str = ""  # the kind of loader that epoch, block and batch are places of
    seconds: float = 0.0
    best: float | None = None
    best_step: int | None = None
    without_better: Count = 0  # validations since the best one
    bad_steps: Count = 0  # in a row, up to now
    skipped: Count = 0  # in all

"""What a run counts: how far it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counters:
    """What a run has done so far, as far as it can be counted."""

    step: int = 0
    epoch: int = 0
    block: int = 0
    batch: int = 0
    batching: str = ""  # the kind of loader that epoch, block and batch are places of
    seconds: float = 0.0
    best: float | None = None
    best_step: int | None = None
    without_better: int = 0  # validations since the best one
    bad_steps: int = 0  # in a row, up to now
    skipped: int = 0  # in all

"""TensorBoard, an optional listener: curves of loss, rate, speed and dev scores in the run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.errors import require
from regard.training.events import Event, Progress, Started, Validated


class Board:
    """Writes events into the folder for TensorBoard to find, from the moment that training starts."""

    def __init__(self, folder: Path) -> None:
        require("tensorboard", extra="track")
        self.folder = folder
        self.writer: Any = None

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                from torch.utils.tensorboard import SummaryWriter

                self.writer = SummaryWriter(str(self.folder))
            case Progress():
                for name in ("loss", "rate", "gradient_norm", "tokens_per_second"):
                    self.writer.add_scalar(f"train/{name}", getattr(event, name), event.step)
            case Validated():
                for name, value in event.metrics.items():
                    self.writer.add_scalar(f"dev/{name}", value, event.step)
                self.writer.flush()

"""TensorBoard, an optional listener: curves of loss, rate, speed and dev scores in the run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.config import load_recipe
from regard.errors import require
from regard.training.events import Event, Progress, Validated


class Board:
    """Writes events where TensorBoard finds them; `writer` None: writes nothing."""

    def __init__(self, writer: Any | None) -> None:
        self.writer = writer

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *exit_details: object) -> None:
        if self.writer is not None:
            self.writer.close()

    def __call__(self, event: Event) -> None:
        if self.writer is None:
            return
        match event:
            case Progress():
                for name in ("loss", "rate", "gradient_norm", "tokens_per_second"):
                    self.writer.add_scalar(f"train/{name}", getattr(event, name), event.step)
            case Validated():
                for name, value in event.metrics.items():
                    self.writer.add_scalar(f"dev/{name}", value, event.step)


def board_for(recipe: str, overrides: list[str], out: Path | None) -> Board:
    """The board of a run whose recipe asks for one with `train.tensorboard=true`."""
    resolved = load_recipe(recipe, overrides)
    if not resolved.train.tensorboard:
        return Board(None)
    require("tensorboard", extra="track")
    from torch.utils.tensorboard import SummaryWriter

    folder = (out or Path("runs") / resolved.name) / "tensorboard"
    return Board(SummaryWriter(str(folder)))

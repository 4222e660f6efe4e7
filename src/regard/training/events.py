"""The events of training. Listeners show, log or plot them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Command:
    """What `train` was called with; the card shows it."""

    recipe: str  # a name or a file
    overrides: tuple[str, ...]
    out: str | None = None  # the run folder, if one was named


@dataclass(frozen=True)
class Started:
    """Training begins or resumes."""

    step: int  # steps already taken, in a resumed run
    steps: int
    parameters: int
    how: str  # device, precision and number of processes, in one line
    seconds: float  # of training so far
    machine: dict[str, str]


@dataclass(frozen=True)
class Progress:
    """Means over the steps since the last report."""

    step: int
    steps: int
    epoch: int
    loss: float  # nats per label, with label smoothing
    rate: float
    gradient_norm: float
    tokens_per_second: float  # labels
    seconds: float  # of training so far, without the time between interruption and resumption


@dataclass(frozen=True)
class Example:
    """One dev example: input, output of the model, and reference."""

    source: str
    output: str
    reference: str
    tags: tuple[str, ...] = ()  # symbols in front of the input


@dataclass(frozen=True)
class Validation:
    """The result of a validation on the dev set."""

    metrics: dict[str, float]
    examples: tuple[Example, ...]
    details: dict[str, Any] = field(default_factory=dict)  # for the report, such as attention weights of an example
    warnings: tuple[str, ...] = ()
    final_warnings: tuple[str, ...] = ()  # printed only when training ends


@dataclass(frozen=True)
class Validated:
    """The model was scored on the dev set."""

    step: int
    metrics: dict[str, float]
    examples: tuple[Example, ...]
    best: bool
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written."""

    step: int
    folder: Path


@dataclass(frozen=True)
class Noted:
    """A message for the user, in one sentence."""

    step: int
    text: str


Event = Command | Started | Progress | Validated | Saved | Noted
Listener = Callable[[Event], None]


def _without_empty(example: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in example.items() if value != ()}


def log_entry(event: Event) -> dict[str, Any]:
    """Return an event as the run's log holds it, one JSON object per line."""
    match event:
        case Command() | Progress() | Started():
            return {"event": type(event).__name__.lower(), **vars(event)}
        case Validated(step, metrics, examples, best, details):
            lines = [_without_empty(vars(example)) for example in examples]
            return {"event": "validated", "step": step, "best": best, **metrics, "examples": lines, **details}
        case Saved(step, folder):
            return {"event": "saved", "step": step, "checkpoint": folder.name}
        case Noted(step, text):
            return {"event": "noted", "step": step, "text": text}

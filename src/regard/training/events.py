"""What training says while it goes on. Whoever listens shows it, logs it or draws it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Started:
    """Before the first step."""

    step: int  # steps already done, when a run goes on
    steps: int
    parameters: int
    how: str  # device, precision and so on, in one line
    seconds: float  # of training so far
    machine: dict[str, str]


@dataclass(frozen=True)
class Progress:
    """A mean over the steps since the last one."""

    step: int
    steps: int
    epoch: int
    loss: float  # nats a target token, smoothed as in training
    rate: float
    gradient_norm: float
    tokens_per_second: float  # target tokens
    seconds: float  # of training so far, pauses between its processes left out


@dataclass(frozen=True)
class Example:
    """One dev sentence on its way."""

    source: str
    output: str
    reference: str


@dataclass(frozen=True)
class Validation:
    """What a look at the dev set gave."""

    metrics: dict[str, float]
    examples: tuple[Example, ...]
    details: dict[str, Any] = field(default_factory=dict)  # for the report: histograms, and attention of an example
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Validated:
    """Scores on the dev set."""

    step: int
    metrics: dict[str, float]
    examples: tuple[Example, ...]
    best: bool
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Saved:
    """A checkpoint is on the disk."""

    step: int
    folder: Path


@dataclass(frozen=True)
class Noted:
    """Something a person should know, in a sentence."""

    step: int
    text: str


Event = Started | Progress | Validated | Saved | Noted
Listener = Callable[[Event], None]


def log_entry(event: Event) -> dict[str, Any]:
    """Return an event as the run's log holds it, one JSON object per line."""
    match event:
        case Progress() | Started():
            return {"event": type(event).__name__.lower(), **vars(event)}
        case Validated(step, metrics, examples, best, details):
            lines = [vars(example) for example in examples]
            return {"event": "validated", "step": step, "best": best, **metrics, "examples": lines, **details}
        case Saved(step, folder):
            return {"event": "saved", "step": step, "checkpoint": folder.name}
        case Noted(step, text):
            return {"event": "noted", "step": step, "text": text}

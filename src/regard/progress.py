"""The progress of training as lines of text: for logs, for pipes, and for `regard.train` in Python."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

from regard.messages import counted, format_duration, printable
from regard.metrics import describe_score
from regard.training.events import Event, Noted, Progress, Saved, Started, Validated


def print_to_stderr(text: str) -> None:
    """Print a line to stderr; drop it if that cannot be written, since training must not stop for it."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(printable(text), file=sys.stderr, flush=True)


class ProgressLines:
    """A listener of training that prints one line per event."""

    def __init__(self, print_line: Callable[[str], None] = print_to_stderr) -> None:
        self.print_line = print_line
        self.started: Started | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self.started = event
                self.print_line(started_line(event))
            case Progress():
                assert self.started is not None, "progress was reported before the start of training"
                left = format_duration(time_left(self.started, event))
                self.print_line(
                    f"step {event.step}/{event.steps}  loss {event.loss:.3f}  rate {event.rate:.2e}  "
                    f"norm {event.gradient_norm:.2f}  {event.tokens_per_second:,.0f} tokens/s  {left} left"
                )
            case Validated():
                best = "  (best)" if event.best else ""
                self.print_line(f"step {event.step}  {describe_metrics(event.metrics)}{best}")
                for example in event.examples:
                    verdict = "correct" if example.output == example.reference else f"expected {example.reference}"
                    self.print_line(f"    {example.source}  ->  {example.output}  ({verdict})")
            case Saved():
                self.print_line(f"step {event.step}  saved {event.folder}")
            case Noted():
                self.print_line(event.text)


def started_line(event: Started) -> str:
    """Return the size of the model, the machine and the steps on one line."""
    resumed = f", resuming from step {event.step}" if event.step else ""
    return f"{counted(event.parameters, 'parameter')}, {event.how}, {counted(event.steps, 'step')}{resumed}"


def describe_metrics(metrics: dict[str, float]) -> str:
    """Return the dev metrics on one line."""
    return ", ".join(describe_score(name, value) for name, value in metrics.items())


def time_left(started: Started, now: Progress) -> float:
    """Return the seconds until the last step, at the speed of this process so far."""
    seconds_per_step = (now.seconds - started.seconds) / max(now.step - started.step, 1)
    return seconds_per_step * (now.steps - now.step)

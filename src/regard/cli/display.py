"""Listeners of training: a live panel on a terminal, plain lines elsewhere, and curves for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from regard.cli.terminal import console, format_duration, print_message, printable
from regard.errors import counted, require
from regard.metrics import describe_score
from regard.training.events import Event, Noted, Progress, Saved, Started, Validated


def describe_metrics(metrics: dict[str, float]) -> str:
    """The dev metrics on one line."""
    return ", ".join(describe_score(name, value) for name, value in metrics.items())


def time_left(started: Started, now: Progress) -> float:
    """Return the seconds until the last step, at the speed of this process so far."""
    seconds_per_step = (now.seconds - started.seconds) / max(now.step - started.step, 1)
    return seconds_per_step * (now.steps - now.step)


class PlainDisplay:
    """Prints one line per event, for logs and pipes."""

    def __init__(self) -> None:
        self.started: Started | None = None

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(self, *exit_details: object) -> None:
        return None

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self.started = event
                print_message(started_line(event))
            case Progress():
                assert self.started is not None, "progress was reported before the start of training"
                left = format_duration(time_left(self.started, event))
                print_message(
                    f"step {event.step}/{event.steps}  loss {event.loss:.3f}  rate {event.rate:.2e}  "
                    f"norm {event.gradient_norm:.2f}  {event.tokens_per_second:,.0f} tokens/s  {left} left"
                )
            case Validated():
                print_message(f"step {event.step}  {describe_metrics(event.metrics)}{'  (best)' if event.best else ''}")
                for example in event.examples:
                    print_message(
                        f"    {example.source}  ->  {example.output}  ({verdict(example.output, example.reference)})"
                    )
            case Saved():
                print_message(f"step {event.step}  saved {event.folder}")
            case Noted():
                print_message(event.text)


def started_line(event: Started) -> str:
    resumed = f", resuming from step {event.step}" if event.step else ""
    return f"{counted(event.parameters, 'parameter')}, {event.how}, {counted(event.steps, 'step')}{resumed}"


def verdict(output: str, reference: str) -> str:
    return "correct" if output == reference else f"expected {reference}"


class LiveDisplay:
    """A panel that is redrawn: progress, latest numbers, dev scores, and the outputs of a few dev examples."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.validated: Validated | None = None
        self.started: Started | None = None
        self.live = Live(console=console, refresh_per_second=4, get_renderable=self.render)

    def __enter__(self) -> LiveDisplay:
        self.live.__enter__()
        return self

    def __exit__(self, *exit_details: object) -> None:
        self.live.__exit__(None, None, None)

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self.started = event
                print_message(started_line(event))
            case Progress():
                self.progress = event
            case Validated():
                self.validated = event
            case Noted():
                print_message(event.text)
            case Saved():
                pass

    def render(self) -> RenderableType:
        if self.progress is None or self.started is None:
            return Text("starting ...", style="dim")
        parts: list[RenderableType] = [self._progress_line(self.started, self.progress)]
        if self.validated is not None:
            parts += [self._scores(self.validated), self._examples(self.validated)]
        return Group(*parts)

    def _progress_line(self, started: Started, progress: Progress) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        grid.add_row(
            ProgressBar(total=progress.steps, completed=progress.step, width=30),
            f"step {progress.step:,}/{progress.steps:,}",
            f"loss [bold]{progress.loss:.3f}[/]",
            f"{progress.tokens_per_second:,.0f} tokens/s",
            f"{format_duration(progress.seconds)} elapsed, [bold]{format_duration(time_left(started, progress))}[/] left",
        )
        return grid

    def _scores(self, validated: Validated) -> RenderableType:
        return Text(f"on the dev set at step {validated.step:,}: {describe_metrics(validated.metrics)}", style="cyan")

    def _examples(self, validated: Validated) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for example in validated.examples:
            correct = example.output == example.reference
            mark = Text("✓", style="green") if correct else Text("✗", style="red")
            output = Text(
                printable(example.output), style="green" if correct else "red", overflow="ellipsis", no_wrap=True
            )
            table.add_row(mark, Text(printable(example.source), overflow="ellipsis", no_wrap=True), Text("→"), output)
        return table


def make_display() -> LiveDisplay | PlainDisplay:
    """Return a live panel if stderr is a terminal, else plain lines."""
    return LiveDisplay() if console.is_terminal else PlainDisplay()


class TensorBoardWriter:
    """Writes loss, learning rate, gradient norm, speed and dev scores into a folder that TensorBoard reads."""

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

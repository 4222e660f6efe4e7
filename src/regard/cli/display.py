"""Listeners of training: a live panel on a terminal, plain lines elsewhere, and curves for TensorBoard; other progress."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from regard.cli.terminal import console, format_duration, print_message, printable
from regard.errors import require
from regard.messages import counted
from regard.progress import ProgressLines, describe_metrics, started_line, time_left
from regard.training.events import Event, Noted, Progress, Saved, Started, Validated

LINE_SECONDS = 5.0  # between two lines of a status without a terminal


class PlainDisplay(ProgressLines):
    """Prints one line per event, for logs and pipes."""

    def __init__(self) -> None:
        super().__init__(print_message)

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(self, *exit_details: object) -> None:
        return None


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


class StatusLine:
    """One line on stderr that changes: on a terminal in place, elsewhere printed every few seconds.

    Use it as a context. Without a terminal the first line is printed after `first_after` seconds.
    """

    def __init__(self, text: str = "", *, first_after: float = 0.0) -> None:
        self.spinner = Spinner("dots", Text(printable(text)))
        # Standard output is for data, and must not be redirected to the terminal.
        self.live = Live(self.spinner, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
        self.next_line = time.monotonic() + first_after
        self.printed = ""

    def __enter__(self) -> StatusLine:
        if console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *exit_details: object) -> None:
        self.live.stop()

    def show(self, text: str, *, last: bool = False) -> None:
        """Show the text; without a terminal, print it if it is the last one or its time has come."""
        if console.is_terminal:
            self.spinner.update(text=Text(printable(text)))
        elif last or (time.monotonic() >= self.next_line and text != self.printed):
            self.printed = text
            self.next_line = time.monotonic() + LINE_SECONDS
            print_message(text)


def describe_lines(done: int, total: int | None, seconds: float) -> str:
    """Return how many lines are done, the rate, and the time left if the total is known."""
    rate = done / max(seconds, 1e-9)
    if total is None:
        return f"{counted(done, 'line')}  {rate:,.0f} lines/s"
    left = format_duration((total - done) / max(rate, 1e-9))
    return f"{done:,}/{counted(total, 'line')}  {rate:,.0f} lines/s  {left} left"


class LineProgress:
    """Shows how many lines have been translated. Use it as a context, and call it with the number of further lines."""

    def __init__(self, total: int | None) -> None:
        self.total, self.done, self.started = total, 0, time.monotonic()
        self.status = StatusLine("translating ...", first_after=LINE_SECONDS)

    def __enter__(self) -> LineProgress:
        self.status.__enter__()
        return self

    def __exit__(self, *exit_details: object) -> None:
        self.status.__exit__(*exit_details)

    def __call__(self, count: int) -> None:
        self.done += count
        self.status.show(describe_lines(self.done, self.total, time.monotonic() - self.started))


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

"""How training looks: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from regard.cli.clock import clock
from regard.cli.say import console, say
from regard.cli.streams import printable
from regard.evaluation.metrics import describe_score
from regard.training.events import Event, Noted, Progress, Saved, Started, Validated


def describe_metrics(metrics: dict[str, float]) -> str:
    """The dev metrics on one line."""
    return ", ".join(describe_score(name, value) for name, value in metrics.items())


def time_left(started: Started, now: Progress) -> float:
    """Seconds until the last step, at the pace since this process began."""
    pace = (now.seconds - started.seconds) / max(now.step - started.step, 1)
    return pace * (now.steps - now.step)


class PlainDisplay:
    """A line for every event, for logs and pipes."""

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
                say(started_line(event))
            case Progress():
                assert self.started is not None, "training reports progress after it has started"
                left = clock(time_left(self.started, event))
                say(
                    f"step {event.step}/{event.steps}  loss {event.loss:.3f}  rate {event.rate:.2e}  "
                    f"norm {event.gradient_norm:.2f}  {event.tokens_per_second:,.0f} tokens/s  {left} left"
                )
            case Validated():
                say(f"step {event.step}  {describe_metrics(event.metrics)}{'  (best)' if event.best else ''}")
                for example in event.examples:
                    say(f"    {example.source}  ->  {example.output}  ({verdict(example.output, example.reference)})")
            case Saved():
                say(f"step {event.step}  saved {event.folder}")
            case Noted():
                say(event.text)


def started_line(event: Started) -> str:
    begun = f", going on from step {event.step}" if event.step else ""
    return f"{event.parameters:,} parameters, {event.how}, {event.steps:,} steps{begun}"


def verdict(output: str, reference: str) -> str:
    return "right" if output == reference else f"should be {reference}"


class LiveDisplay:
    """A panel that is drawn anew: progress, the last numbers, dev scores and how a few sentences come along."""

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
                say(started_line(event))
            case Progress():
                self.progress = event
            case Validated():
                self.validated = event
            case Noted():
                say(event.text)
            case Saved():
                pass

    def render(self) -> RenderableType:
        if self.progress is None or self.started is None:
            return Text("getting ready ...", style="dim")
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
            f"{clock(progress.seconds)} gone, [bold]{clock(time_left(started, progress))}[/] left",
        )
        return grid

    def _scores(self, validated: Validated) -> RenderableType:
        return Text(f"on held-out text at step {validated.step:,}: {describe_metrics(validated.metrics)}", style="cyan")

    def _examples(self, validated: Validated) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for example in validated.examples:
            right = example.output == example.reference
            mark = Text("✓", style="green") if right else Text("✗", style="red")
            output = Text(
                printable(example.output), style="green" if right else "red", overflow="ellipsis", no_wrap=True
            )
            table.add_row(mark, Text(printable(example.source), overflow="ellipsis", no_wrap=True), Text("→"), output)
        return table


def make_display() -> LiveDisplay | PlainDisplay:
    """Live where a terminal is there to draw on."""
    return LiveDisplay() if console.is_terminal else PlainDisplay()

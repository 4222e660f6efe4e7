"""regard demo"""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.cells import cell_len, set_cell_size
from rich.markup import escape

from regard.cli.terminal import (
    StopRequest,
    command_name,
    console,
    format_duration,
    print_message,
    print_warning,
    printable,
)
from regard.errors import python_command


def demo(
    out: Annotated[Path, typer.Option(help="The run folder.")] = Path("runs/dates"),
) -> None:
    """Train a Transformer that converts dates in many languages to ISO 8601, and use it. Takes about three minutes.

    It takes longer on a busy machine. The corpus is built in: dates as they are written in 37 locales. No network and no
    GPU are needed. The model has rotary positions, pre-norm and a warm-up-stable-decay schedule, which need fewer steps
    than the paper's choices.

    Example:

      regard demo
    """
    from regard.run.folder import RunFolder

    trained = RunFolder(out).finished
    if not trained:
        print_message("Training a Transformer to read dates: samedi 14 novembre 2026 -> 2026-11-14")
        print_message(
            "To be quick, it does not use the paper's positions, norm order and schedule, but rotary positions, "
            "pre-norm and warm-up-stable-decay."
        )
    from regard import api, evaluating, loading
    from regard.cli.display import make_display
    from regard.text.dates import EXAMPLES

    started = time.monotonic()
    with StopRequest() as stop, make_display() as display:
        outcome = api.train("dates", out=out, listen=(lambda event: None) if trained else display, stop=stop)
    if not outcome.finished:
        print_message(f"stopped; resume with: {command_name()} demo --out {out}")
        raise typer.Exit(stop.status)
    if trained:
        again = f"{command_name()} demo --out {shlex.quote(f'{out}-2')}"
        print_message(f"{out} is trained already. To train again, remove it, or name another folder: {again}")
    if outcome.trained:
        print_message(f"trained in {format_duration(time.monotonic() - started)}")
    [result] = evaluating.evaluate(out, warn=print_warning)
    exact = next(score for score in result.scores if score.name == "exact")
    print_message(f"{exact.value:.2f} % of {result.num_pairs:,} dates that were not in the training data are correct\n")
    outputs = loading.load(out, warn=print_warning).predict(EXAMPLES)
    width = max(cell_len(text) for text in EXAMPLES)
    for text, output in zip(EXAMPLES, outputs, strict=True):
        console.print(f"  {set_cell_size(text, width)}  [dim]→[/]  [bold green]{escape(printable(output))}[/]")
    print_message("")
    for line in next_steps(out):
        print_message(line)


def next_steps(run: Path) -> list[str]:
    """Return lines with commands that use the run; the commands work as they are printed."""
    regard, folder = command_name(), shlex.quote(str(run))
    lines = [
        f"The run is in {run}. Next, try:",
        f'  echo "3 de mayo de 1999" | {regard} translate {folder}',
        f'  {regard} look {folder} "Donnerstag, 9. November 1989"',
        f"  {regard} evaluate {folder}",
        f"Open {run / 'report.html'} in a browser to see how training went.",
    ]
    activate = Path(python_command()).with_name("activate")
    if activate.is_file():  # python_command() is a path: the environment is not active
        lines.append(f"To type only regard from now on: source {activate}")
    return lines

"""regard demo"""

from __future__ import annotations

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


def demo(
    out: Annotated[Path, typer.Option(help="The run folder.")] = Path("runs/dates"),
) -> None:
    """Train a Transformer that converts dates in many languages to ISO 8601, and use it. Takes two minutes on a laptop.

    The corpus is built in: dates as they are written in 37 locales. No network and no GPU are needed.

    Example:

      regard demo
    """
    print_message("Training a Transformer to read dates: samedi 14 novembre 2026 -> 2026-11-14")
    from regard import api
    from regard.cli.display import make_display
    from regard.text.dates import EXAMPLES

    started = time.monotonic()
    with StopRequest() as stop, make_display() as display:
        outcome = api.train("dates", out=out, listen=display, stop=stop)
    if not outcome.finished:
        print_message(f"stopped; resume with: {command_name()} demo --out {out}")
        raise typer.Exit(stop.status)
    if outcome.trained:
        print_message(f"trained in {format_duration(time.monotonic() - started)}")
    [result] = api.evaluate(out, warn=print_warning)
    exact = next(score for score in result.scores if score.name == "exact")
    print_message(f"{exact.value:.2f} % of {result.num_pairs:,} dates that were not in the training data are correct\n")
    outputs = api.load(out, warn=print_warning).predict(EXAMPLES)
    width = max(cell_len(text) for text in EXAMPLES)
    for text, output in zip(EXAMPLES, outputs, strict=True):
        console.print(f"  {set_cell_size(text, width)}  [dim]→[/]  [bold green]{escape(printable(output))}[/]")
    print_message(f"\nThe run is in {out}. Next, try:")
    print_message(f'  echo "3 de mayo de 1999" | {command_name()} translate {out}')
    print_message(f"  {command_name()} evaluate {out}")

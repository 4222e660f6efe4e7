"""regard demo"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.cells import cell_len, set_cell_size
from rich.markup import escape

from regard.cli.say import console, own_name, say
from regard.cli.stopping import StopRequest
from regard.cli.streams import printable


def demo(
    out: Annotated[Path, typer.Option(help="The run folder.")] = Path("runs/dates"),
) -> None:
    """Train a Transformer on dates in many languages, here and now, and use it. Takes about two minutes on a laptop.

    The corpus is built in: dates as people write them in 37 locales, to ISO 8601. No network, no GPU.
    """
    say("Teaching a Transformer to read dates: samedi 14 novembre 2026 -> 2026-11-14")
    from regard import api
    from regard.cli.clock import clock
    from regard.cli.display import make_display
    from regard.text.dates import EXAMPLES

    started = time.monotonic()
    with StopRequest() as stop, make_display() as display:
        outcome = api.train("dates", out=out, listen=display, stop=stop)
    if not outcome.finished:
        say(f"stopped; go on with: {own_name()} demo --out {out}")
        raise typer.Exit(stop.status)
    if outcome.trained:
        say(f"trained in {clock(time.monotonic() - started)}")
    else:
        say(f"{out} is trained already (remove it to train again)")
    [result] = api.evaluate(out)
    exact = next(score for score in result.scores if score.name == "exact")
    say(f"{exact.value:.2f} % of {result.num_pairs:,} dates never seen in training come out right\n")
    outputs = api.load(out).predict(EXAMPLES)
    width = max(cell_len(text) for text in EXAMPLES)
    for text, output in zip(EXAMPLES, outputs, strict=True):
        console.print(f"  {set_cell_size(text, width)}  [dim]→[/]  [bold green]{escape(printable(output))}[/]")
    say(f"\nThe run is in {out}. Now try:")
    say(f'  echo "3 de mayo de 1999" | {own_name()} translate {out}')
    say(f"  {own_name()} evaluate {out}")

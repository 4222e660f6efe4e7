"""regard card"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.say import say
from regard.cli.streams import printable


def card(
    run: Annotated[Path, typer.Argument(help="A run folder; it may still be training.", show_default=False)],
    data: Annotated[Path | None, typer.Option(help="Where data files are; or set REGARD_DATA.")] = None,
    evaluate: Annotated[bool, typer.Option(help="Score the run on its recipe's test sets.")] = True,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Write a run's card: recipe, data and its hash, seed, scores with signatures, time, speed and hardware.

    Examples:

      regard card runs/dates

      regard card runs/multi30k-en-de --data ~/data

      regard card runs/mine --no-evaluate
    """
    from regard import api

    path = api.card(run, data=data, evaluated=evaluate, device=device)
    print(printable(path.read_text(encoding="utf-8")), end="")
    say(f"written to {path} and {path.with_suffix('.json').name}")

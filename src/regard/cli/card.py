"""regard card"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import print_message, print_warning, printable


def card(
    run: Annotated[Path, typer.Argument(help="A run folder. It may still be training.", show_default=False)],
    data: Annotated[Path | None, typer.Option(help="Folder of data files. Default: REGARD_DATA.")] = None,
    evaluate: Annotated[bool, typer.Option(help="Score the run on the test sets of its recipe.")] = True,
    note: Annotated[
        list[str] | None, typer.Option(help="What else a reader should know, such as what was tried. May be repeated.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Write the card of a run: recipe, data with hashes, seed, scores with signatures, time, speed and hardware.

    The card is printed, and written to card.md and card.json in the run folder.

    Examples:

      regard card runs/dates

      regard card runs/multi30k-en-de --data ~/data

      regard card runs/mine --no-evaluate --note 'A rate of 0.01 diverged.'
    """
    from regard import api

    path = api.card(run, data=data, evaluated=evaluate, notes=note or (), device=device, warn=print_warning)
    print(printable(path.read_text(encoding="utf-8")), end="")
    print_message(f"wrote {path} and {path.with_suffix('.json').name}")

"""regard export"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.say import own_name, say


class Weights(StrEnum):
    """How weights are stored."""

    float32 = "float32"
    float16 = "float16"
    int8 = "int8"


def export(
    run: Annotated[Path, typer.Argument(help="A run folder, or a model in the box.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.", show_default=False)],
    weights: Annotated[Weights, typer.Option(help="How weights are stored; they are computed with as float32.")] = (
        Weights.float32
    ),
) -> None:
    """Copy what translating needs, and nothing else, into a folder to give away.

    Examples:

      regard export runs/mine --out mine

      regard export runs/mine --out mine-small --weights int8      a quarter of the bytes
    """
    from regard import api

    folder = api.export(run, out, weights=weights.value)
    say(f"{folder}: {folder.folder.size() / 1e6:.1f} MB; use it like any run: {own_name()} translate {folder}")

"""regard export"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import print_message


class Weights(StrEnum):
    """How weights are stored."""

    float32 = "float32"
    float16 = "float16"
    int8 = "int8"


def export(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run folder, a checkpoint of it, or a pretrained model: de-en, en-de.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.", show_default=False)],
    weights: Annotated[
        Weights, typer.Option(help="How weights are stored. They are converted to float32 when they are loaded.")
    ] = Weights.float32,
) -> None:
    """Copy what using the model needs into a folder that can be given away: weights, tokenizer or labels, recipe and card.

    Examples:

      regard export runs/mine --out mine

      regard export runs/mine --out mine-small --weights int8      a quarter of the size
    """
    from regard import api
    from regard.cli.hints import command_that_predicts

    folder = api.export(run, out, weights=weights.value)
    size = folder.folder.size() / 1e6
    command = command_that_predicts(folder.recipe(), folder.path)
    print_message(f"{folder}: {size:.1f} MB; use it like any run, as in: {command}")

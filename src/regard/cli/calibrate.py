"""regard calibrate"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import print_message, print_warning, printable
from regard.messages import counted


def calibrate(
    run: Annotated[Path, typer.Argument(help="The folder of a finished translation run.", show_default=False)],
    data: Annotated[Path | None, typer.Option(help="Folder of data files. Default: REGARD_DATA.")] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="A file of pairs in place of the recipe's dev set: .tsv, .csv, .jsonl, .tmx, .po or .parquet. "
            "Without --test, every other pair is for testing.",
            show_default=False,
        ),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="A file of pairs in place of the recipe's test sets.", show_default=False)
    ] = None,
    most: Annotated[int, typer.Option(help="Pairs of the dev set that are used at most.", min=1)] = 2000,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Fit a temperature on a run's dev set so that probabilities match accuracy (calibration), and measure the
    calibration error.

    The temperature divides the logits, and changes no translation and no score. It is stored in the run folder, as
    calibration.json, and exports keep it. With it, `regard score --json --confidence` and the server give the probability
    of each word and of each sentence. The expected calibration error before and after is printed for each test set.

    Examples:

      regard calibrate runs/multi30k-en-de --data ~/data

      regard calibrate runs/mine --pairs dev.tsv --test test.tsv

      # a pretrained model, on your own text
      regard export en-de --out mine && regard calibrate mine --pairs my.tsv
    """
    from regard.calibrating import calibrate as fit

    found = fit(run, data=data, pairs=pairs, test=test, most=most, device=device, warn=print_warning)
    print(f"temperature {found.temperature:.3f}")
    for one in found.tests:
        print(f"{printable(one.name)} ({counted(one.num_pairs, 'pair')}, {counted(one.num_tokens, 'token')})")
        print(f"  expected calibration error  {one.error_before:7.2%} before   {one.error_after:7.2%} after")
        print(f"  negative log-likelihood     {one.nll_before:7.4f} before   {one.nll_after:7.4f} after")
    print_message(f"wrote {run / 'calibration.json'}")

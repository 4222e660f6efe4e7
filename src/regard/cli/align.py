"""regard align"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.adapt import column_names
from regard.cli.terminal import print_message, print_warning
from regard.errors import DataError
from regard.messages import counted


def align(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Pairs: .tsv, .csv, .jsonl, .tmx, .po or .parquet; with --reference one source per line.",
            show_default=False,
        ),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Translations of the sources, line by line.", show_default=False)
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE,TARGET",
            help="What the sides of the file are called: names, numbers or languages.",
            show_default=False,
        ),
    ] = None,
    method: Annotated[
        Literal["grow-diag-final-and", "intersection", "union", "source-to-target"],
        typer.Option(help="How the links of both directions are combined."),
    ] = "grow-diag-final-and",
    as_json: Annotated[bool, typer.Option("--json", help="Print words and links of each pair as JSON.")] = False,
    run: Annotated[
        Path | None,
        typer.Option(
            help="Write the shortlist of this run folder instead, from its training text.", show_default=False
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="With --run: folder of data files. Default: REGARD_DATA.")] = None,
) -> None:
    """Link the words of translations, or learn the likely translations of a run's tokens.

    Prints one line per pair, such as 0-0 1-2 2-1: the positions of a source word and a target word, from 0, as fast_align
    does. Words are split at spaces and punctuation, and links are learnt from these pairs alone: the more, the better.

    With --run, shortlist.json is written to the run folder. `regard translate RUN --shortlist 50` then outputs only tokens
    that it names, which is faster on a CPU.

    Examples:

      regard align my.tsv > my.align

      regard align my.en --reference my.de --method intersection --json

      regard align --run runs/mine --data ~/data
    """
    from regard import aligning

    if run is not None:
        if reference is not None or columns is not None or as_json:
            raise typer.BadParameter("--run takes files of pairs alone, and prints no links")
        found = aligning.make_shortlist(run, data=data, pairs=files or (), warn=print_warning)
        print_message(
            f"wrote {run / 'shortlist.json'}, with translations of {counted(len(found.translations), 'token')}"
        )
        return
    if not files:
        raise typer.BadParameter("name a file of pairs, or a run with --run")
    from regard.text.corpus import read_pairs

    pairs = read_pairs(files, [reference] if reference else None, columns=column_names(columns))
    if not pairs:
        raise DataError(f"{files[0]} has no pairs")
    print_message(f"learning from {counted(len(pairs), 'pair')}")
    for one in aligning.align(pairs, method=method):
        if as_json:
            print(json.dumps({"source": one.source, "target": one.target, "links": one.links}, ensure_ascii=False))
        else:
            print(" ".join(f"{source}-{target}" for source, target in one.links))

"""regard probe"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.report import refuse_to_replace
from regard.cli.terminal import print_message, print_warning

LINE_SECONDS = 5.0  # between two lines of progress

app = typer.Typer(help="Ask what the parts of a model do.", no_args_is_help=True)


@app.callback()
def probe() -> None:
    """Ask what the parts of a model do."""


@app.command()
def heads(
    run: Annotated[
        Path,
        typer.Argument(help="A translation run, or a pretrained model: de-en, en-de.", show_default=False),
    ],
    data: Annotated[
        Path,
        typer.Option(help="Sentences and translations: .tsv, .csv, .jsonl, .tmx, .po or .parquet.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.")] = Path("probe"),
    sentences: Annotated[int, typer.Option(help="As many pairs of the file are used.", min=1)] = 200,
    points: Annotated[int, typer.Option(help="As many points has a curve.", min=2)] = 9,
) -> None:
    """Measure how important each attention head is and where it attends, and remove heads in the order of importance.

    Importance is measured twice: by how much the loss per token grows without the head, and by the mean gradient of the loss
    with respect to a gate behind it (Michel et al. 2019). Then heads are removed from the least important on, in both orders
    and at random (Voita et al. 2019).

    Where a head attends is described by two means over all queries: the entropy of its weights (0: one position; ln n: n
    positions equally) and, for self-attention, the distance between query and key in positions (1: the token before).

    Writes heads.json, importance.svg, patterns.svg and pruning.svg, and prints a summary.

    Examples:

      regard probe heads en-de --data test.tsv

      regard probe heads runs/mine --data test.tsv --sentences 500 --out heads-of-mine
    """
    from regard.errors import require

    # Fail before the measurement, not after it.
    require("matplotlib", extra="plots")
    numbers, *pictures = (out / name for name in ("heads.json", "importance.svg", "patterns.svg", "pruning.svg"))
    for path in (numbers, *pictures):
        refuse_to_replace(path, path.suffix.removeprefix("."))
    from regard.explain.head_figures import draw_heads, draw_pruning
    from regard.probing import probe_heads

    last = 0.0

    def report(what: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            print_message(f"{what}: {done} of {total}")

    found = probe_heads(run, data, sentences=sentences, points=points, report=report, warn=print_warning)
    out.mkdir(parents=True, exist_ok=True)
    numbers.write_text(json.dumps(found.as_data(), indent=1) + "\n", encoding="utf-8")
    draw_heads(pictures[0], {"loss without the head": found.removal, "mean |gradient|": found.gradient})
    draw_heads(pictures[1], {"entropy (nats)": found.entropy, "distance (positions)": found.distance})
    draw_pruning(pictures[2], found.curves)
    print(found.as_text())
    print_message(f"wrote heads.json, importance.svg, patterns.svg and pruning.svg to {out}")

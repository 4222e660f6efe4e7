"""regard probe"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.paths import refuse_to_replace
from regard.cli.terminal import print_message, print_warning

LINE_SECONDS = 5.0  # between two lines of progress

app = typer.Typer(help="Measure attention heads and layers of a trained model.", no_args_is_help=True)


@app.callback()
def probe() -> None:
    """Measure attention heads and layers of a trained model."""


RUN = Annotated[
    Path,
    typer.Argument(help="A translation run, or a pretrained model: de-en, en-de, zh-en.", show_default=False),
]
DATA = Annotated[
    Path,
    typer.Option(help="Sentences and translations: .tsv, .csv, .jsonl, .tmx, .po or .parquet.", show_default=False),
]
OUT = Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.")]
SENTENCES = Annotated[int, typer.Option(help="Number of pairs to read.", min=1)]


@app.command()
def heads(
    run: RUN,
    data: DATA,
    out: OUT = Path("probe"),
    sentences: SENTENCES = 200,
    points: Annotated[int, typer.Option(help="Number of points of a curve.", min=2)] = 9,
) -> None:
    """Measure how important each attention head is and where it attends, and remove heads in the order of importance.

    Importance is measured twice: by how much the loss per token grows without the head, and by the mean absolute gradient of
    the loss with respect to a gate behind it (Michel et al. 2019). Then heads are removed from the least important on, in
    both orders and at random (Voita et al. 2019).

    Where a head attends is described by two means over all queries: the entropy of its weights (0: one position; ln n: n
    positions equally) and, for self-attention, the distance between query and key in positions (1: the token before).

    Writes heads.json, importance.svg, patterns.svg and pruning.svg, and prints a summary.

    Examples:

      regard probe heads en-de --data test.tsv

      regard probe heads runs/mine --data test.tsv --sentences 500 --out heads
    """
    numbers, *pictures = files_in(out, "heads.json", "importance.svg", "patterns.svg", "pruning.svg")
    from regard.explain.head_figures import draw_heads, draw_pruning
    from regard.probing import probe_heads

    found = probe_heads(run, data, sentences=sentences, points=points, report=progress(), warn=print_warning)
    out.mkdir(parents=True, exist_ok=True)
    numbers.write_text(json.dumps(found.as_data(), indent=1) + "\n", encoding="utf-8")
    draw_heads(pictures[0], {"loss without the head": found.removal, "mean |gradient|": found.gradient})
    draw_heads(pictures[1], {"entropy (nats)": found.entropy, "distance (positions)": found.distance})
    draw_pruning(pictures[2], found.curves)
    print(found.as_text())
    print_message(f"wrote heads.json, importance.svg, patterns.svg and pruning.svg to {out}")


@app.command()
def layers(
    run: RUN,
    data: DATA,
    other: Annotated[
        Path | None,
        typer.Argument(metavar="RUN2", help="Another run, which may have another size.", show_default=False),
    ] = None,
    out: OUT = Path("probe"),
    sentences: SENTENCES = 200,
) -> None:
    """Measure how similarly layers represent the same tokens, within a run or between two runs.

    The measure is linear CKA (Kornblith et al. 2019): 1 if the vectors of two layers are equal up to rotation, scale and
    shift, whatever their widths; near 0 if they are unrelated. Similar neighbours mean that a layer changes little; two runs
    that differ in the seed alone show which layers training determines. Encoder states are those of the sources, decoder
    states those of the references. Layer 0 is the input of the first layer: embeddings with positions.

    The mean cosine between two positions of a sentence is printed too: near 1, attention has nothing to choose from.

    Use many more tokens than a layer has columns: independent noise has a similarity of about width / (tokens + width), also
    printed. Two runs must share a tokenizer. Writes layers.json and layers.svg, and prints the tables.

    Examples:

      regard probe layers en-de --data test.tsv

      regard probe layers runs/seed1 runs/seed2 --data test.tsv --out seeds
    """
    numbers, picture = files_in(out, "layers.json", "layers.svg")
    from regard.explain.layer_figures import draw_similarity
    from regard.probing import probe_layers

    found = probe_layers(run, data, other=other, sentences=sentences, report=progress(), warn=print_warning)
    out.mkdir(parents=True, exist_ok=True)
    numbers.write_text(json.dumps(found.as_data(), indent=1) + "\n", encoding="utf-8")
    draw_similarity(picture, found.similarity, found.runs)
    print(found.as_text())
    print_message(f"wrote layers.json and layers.svg to {out}")


def files_in(out: Path, *names: str) -> list[Path]:
    """Return the files to write. Raise our error if one would replace another file, or if pictures cannot be drawn."""
    from regard.errors import require

    # Fail before the measurement, not after it.
    require("matplotlib", extra="plots")
    paths = [out / name for name in names]
    for path in paths:
        refuse_to_replace(path, path.suffix.removeprefix("."))
    return paths


def progress() -> Callable[[str, int, int], None]:
    """Return a function that prints what is done, how much of it, and of how much, but not too often."""
    last = 0.0

    def report(what: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            print_message(f"{what}: {done} of {total}")

    return report

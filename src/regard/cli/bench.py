"""regard bench"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.say import say

app = typer.Typer(help="Measure this machine.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure this machine. Side-by-side runs with peers are in the repository's benchmarks/ folder."""


@app.command()
def table1(
    out: Annotated[
        Path | None, typer.Option(help="A .json file; a picture (.svg) goes beside it.", show_default=False)
    ] = None,
    longest: Annotated[int, typer.Option(help="Most tokens of a sentence; lengths double from 64.", min=256)] = 8192,
    widest: Annotated[int, typer.Option(help="Largest width; widths double from 64.", min=256)] = 1024,
    width: Annotated[int, typer.Option(help="The width at which lengths are compared.", min=64)] = 256,
    length: Annotated[int, typer.Option(help="The length at which widths are compared.", min=64)] = 512,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads; 0 lets PyTorch choose.")] = 0,
) -> None:
    """The paper's Table 1, measured here: self-attention, recurrent, convolutional and restricted layers.

    Prints the time of one layer as sentences get longer and vectors wider, how it grows beside the paper's O(...), and where
    self-attention begins to take longer than each of the others.

    Examples:

      regard bench table1

      regard bench table1 --device cuda --out table1.json
    """
    from regard.bench.report import as_data, as_text, draw, summarize
    from regard.bench.table1 import HEAD, KINDS, measure
    from regard.errors import require
    from regard.nn.device import pick_device, use_device, use_threads
    from regard.run.machine import describe_machine

    if width % HEAD:
        raise typer.BadParameter(f"widths are made of heads of {HEAD}; give a multiple of it", param_hint="--width")
    if out is not None:
        require("matplotlib", extra="plots")  # before anything is measured
    where = use_device(pick_device(device))
    use_threads(threads)
    sizes = {(n, width) for n in _doubling(longest)} | {(length, d) for d in _doubling(widest)}
    points = []
    for kind in KINDS:
        say(f"{kind.name} ...")
        for n, d in sorted(sizes):
            try:
                points.append(measure(kind, n, d, where))
            except RuntimeError as refused:  # a library has its limits, and cuDNN says only that it has
                say(f"{kind.name}: left out n = {n}, d = {d}: {str(refused).partition(chr(10))[0]}")
    summary = summarize(points, width=width, length=length)
    print(as_text(points, summary))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(as_data(points, summary, describe_machine(where)), indent=1) + "\n", encoding="utf-8")
        draw(points, summary, out.with_suffix(".svg"))
        say(f"written to {out} and {out.with_suffix('.svg').name}")


def _doubling(largest: int) -> list[int]:
    return [64 * 2**power for power in range(20) if 64 * 2**power <= largest]

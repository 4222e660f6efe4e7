"""regard bench"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import print_message

app = typer.Typer(help="Measure this machine.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure this machine. Comparisons with other systems are in the repository's benchmarks/ folder."""


@app.command()
def table1(
    out: Annotated[
        Path | None,
        typer.Option(help="Write the results to this .json file, and a picture to an .svg of the same name."),
    ] = None,
    longest: Annotated[int, typer.Option(help="Largest number of tokens. Lengths double from 64.", min=256)] = 8192,
    widest: Annotated[int, typer.Option(help="Largest width. Widths double from 64.", min=256)] = 1024,
    width: Annotated[int, typer.Option(help="Width at which lengths are compared.", min=64)] = 256,
    length: Annotated[int, typer.Option(help="Length at which widths are compared.", min=64)] = 512,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads. 0: PyTorch's default.")] = 0,
) -> None:
    """Measure Table 1 of the paper: self-attention, recurrent, convolutional and restricted self-attention layers.

    Prints the time of one layer for growing lengths and widths, compares the growth with the paper's O(...), and prints the
    length from which self-attention takes longer than each of the other layers.

    Examples:

      regard bench table1

      regard bench table1 --device cuda --out table1.json
    """
    from regard.errors import require
    from regard.nn.device import describe_machine, pick_device, use_device, use_threads
    from regard.table1 import HEAD, LAYERS, as_data, as_text, draw, measure, summarize

    if width % HEAD:
        raise typer.BadParameter(
            f"a width consists of heads of {HEAD}; give a multiple of {HEAD}", param_hint="--width"
        )
    if out is not None:
        # Fail before the measurement, not after it.
        require("matplotlib", extra="plots")
    where = use_device(pick_device(device))
    use_threads(threads)
    sizes = {(n, width) for n in _doubling(longest)} | {(length, d) for d in _doubling(widest)}
    points = []
    for layer in LAYERS:
        print_message(f"{layer.name} ...")
        for n, d in sorted(sizes):
            try:
                points.append(measure(layer, n, d, where))
            except RuntimeError as error:
                # Libraries such as cuDNN refuse some sizes.
                reason = str(error).partition("\n")[0]
                print_message(f"{layer.name}: skipped n = {n}, d = {d}: {reason}")
    summary = summarize(points, width=width, length=length)
    print(as_text(points, summary))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(as_data(points, summary, describe_machine(where)), indent=1) + "\n", encoding="utf-8")
        draw(points, summary, out.with_suffix(".svg"))
        print_message(f"wrote {out} and {out.with_suffix('.svg').name}")


def _doubling(largest: int) -> list[int]:
    return [64 * 2**power for power in range(20) if 64 * 2**power <= largest]

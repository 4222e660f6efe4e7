"""regard translate"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.cluster import refuse_without_ray, translate_with_ray
from regard.cli.say import warn


def translate(
    run: Annotated[
        Path, typer.Argument(help="A run folder (it may still be training), or de-en, en-de.", show_default=False)
    ],
    file: Annotated[
        str,
        typer.Argument(
            metavar="[INPUT]",
            help="Text to translate, one sentence a line, plain or gzip; - is stdin.",
            show_default=False,
        ),
    ] = "-",
    output: Annotated[Path | None, typer.Argument(help="With --ray: the folder that the shards go to.")] = None,
    beam: Annotated[int | None, typer.Option(help="Beams; 1 is greedy. As the recipe says if not given.")] = None,
    nbest: Annotated[int, typer.Option(help="Translations a line.")] = 1,
    length_penalty: Annotated[float | None, typer.Option(help="alpha of Wu et al. 2016; 0 favours short.")] = None,
    max_extra: Annotated[int | None, typer.Option(help="Most output tokens beyond the input's.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Times that mask-predict goes over what it wrote.")] = None,
    rescorer: Annotated[
        Path | None,
        typer.Option(
            "--rescorer", "--judge", help="A run that chooses among the candidates of the beam.", show_default=False
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    int8: Annotated[
        bool, typer.Option("--int8", help="Multiply 8-bit integers: faster on a CPU, nearly the same text.")
    ] = False,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 lets PyTorch choose (with --ray: 1 a worker).")] = 0,
    ray: Annotated[
        bool, typer.Option("--ray", help="Translate a file, folder or pattern, text or Parquet, by workers on Ray.")
    ] = False,
    workers: Annotated[int | None, typer.Option(help="With --ray: workers; one a GPU, or a CPU, if not given.")] = None,
    shard_lines: Annotated[int | None, typer.Option(help="With --ray: lines a shard; 8192 if not given.")] = None,
    column: Annotated[
        str | None, typer.Option(help="With --ray: the column of Parquet files; text if not given.")
    ] = None,
) -> None:
    """Translate lines, in order: line N out is line N in. An empty line stays empty.

    Examples:

      echo "Wo ist der Bahnhof?" | regard translate de-en

      echo "samedi 14 novembre 2026" | regard translate runs/dates

      regard translate runs/multi30k-en-de test.en.gz --beam 5 > test.de

      regard translate runs/multi30k-en-de test.en --int8         on a CPU: up to one and a half times as fast

      regard translate runs/multi30k-en-de test.en --nbest 4      prints: line ||| translation ||| score

      regard translate de-en news.de.gz out --ray                 out/part-00000.txt ...; a second run skips what is there

      regard translate de-en 'news/*.parquet' out --ray --column body --workers 8
    """
    search = {
        "beam": beam, "nbest": nbest, "length_penalty": length_penalty, "max_extra": max_extra, "iterations": iterations,
    }  # fmt: skip
    own = {"workers": workers, "shard_lines": shard_lines, "column": column}
    if ray:
        if rescorer is not None:
            raise typer.BadParameter("--rescorer does not go with --ray")
        if int8:
            raise typer.BadParameter("--int8 does not go with --ray")
        translate_with_ray(run, file, output, search, device=device, threads=threads, **own)
        return
    refuse_without_ray(output=output, **own)
    from regard import api
    from regard.nn.device import use_threads

    use_threads(threads)
    translator = api.load_translator(run, "translate", device=device, warn=warn, rescorer=rescorer, int8=int8)
    options = translator.config.replace(**search)
    for number, found in enumerate(translator.stream(_lines(file), options=options)):
        for one in found[:nbest]:
            print(one.text if nbest == 1 else f"{number} ||| {one.text} ||| {one.score:.4f}")
        sys.stdout.flush()


def _lines(file: str) -> Iterator[str]:
    from regard.text.corpus import decode_lines, stream_lines

    if file == "-":
        return decode_lines(sys.stdin.buffer, "the standard input")  # type: ignore[arg-type]
    return stream_lines(Path(file))

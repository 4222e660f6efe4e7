"""regard translate"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.say import warn


def translate(
    run: Annotated[
        Path, typer.Argument(help="A run folder (it may still be training), or de-en, en-de.", show_default=False)
    ],
    file: Annotated[
        str, typer.Argument(help="Text to translate, one sentence a line, plain or gzip; - is stdin.")
    ] = "-",
    beam: Annotated[int | None, typer.Option(help="Beams; 1 is greedy. As the recipe says if not given.")] = None,
    nbest: Annotated[int, typer.Option(help="Translations a line.")] = 1,
    length_penalty: Annotated[float | None, typer.Option(help="alpha of Wu et al. 2016; 0 favours short.")] = None,
    max_extra: Annotated[int | None, typer.Option(help="Most output tokens beyond the input's.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads; 0 lets PyTorch choose.")] = 0,
) -> None:
    """Translate lines, in order: line N out is line N in. An empty line stays empty.

    Examples:

      echo "Wo ist der Bahnhof?" | regard translate de-en

      echo "samedi 14 novembre 2026" | regard translate runs/dates

      regard translate runs/multi30k-en-de test.en.gz --beam 5 > test.de

      regard translate runs/multi30k-en-de test.en --nbest 4      prints: line ||| translation ||| score
    """
    from regard import api
    from regard.decoding.translator import search_options
    from regard.nn.device import use_threads

    use_threads(threads)
    translator = api.load(run, device=device, warn=warn)
    options = search_options(
        translator.config, beam=beam, nbest=nbest, length_penalty=length_penalty, max_extra=max_extra
    )
    for number, found in enumerate(translator.stream(_lines(file), options=options)):
        for one in found[:nbest]:
            print(one.text if nbest == 1 else f"{number} ||| {one.text} ||| {one.score:.4f}")
        sys.stdout.flush()


def _lines(file: str) -> Iterator[str]:
    from regard.text.corpus import decode_lines, stream_lines

    if file == "-":
        return decode_lines(sys.stdin.buffer, "the standard input")  # type: ignore[arg-type]
    return stream_lines(Path(file))

"""regard translate, on this machine or with --ray on many."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from regard.cli.terminal import (
    Terminated,
    command_name,
    console,
    format_duration,
    print_message,
    print_warning,
    printable,
)
from regard.config import SearchOptions
from regard.errors import ConfigError
from regard.messages import counted

LINE_SECONDS = 5.0  # between two lines of progress without a terminal


def refuse_without_ray(**given: object) -> None:
    """Raise ConfigError if an option is given that has an effect only with --ray."""
    for name, value in given.items():
        if value is not None:
            shown = "OUTPUT" if name == "output" else "--" + name.replace("_", "-")
            raise ConfigError(f"{shown} needs --ray; without --ray, translations are printed to standard output")


def translate_with_ray(run: Path, source: str, output: Path | None, search: dict[str, Any], **others: Any) -> None:
    """Translate into a folder, and show the progress."""
    if output is None or source == "-":
        raise ConfigError(
            "--ray needs an INPUT (a file, a folder or a pattern) and an OUTPUT folder: "
            f"{command_name()} translate {run} INPUT OUTPUT --ray"
        )
    from regard.cluster.corpus import translate_corpus

    options = SearchOptions().replace(**search)
    given = {name: value for name, value in others.items() if value is not None}
    try:
        with RayDisplay() as display:
            outcome = translate_corpus(
                run, source, output, options=options, on_event=display, warn=print_warning, **given
            )
    except (KeyboardInterrupt, Terminated):
        print_message(f"finished shards are kept; resume with: {command_name()} {shlex.join(sys.argv[1:])}")
        raise
    shards = counted(outcome.shards, "shard")
    done = f"translated {outcome.translated} of {shards}" if outcome.translated else "nothing to do"
    join = f"cat {outcome.pattern}" if outcome.pattern.endswith(".txt") else f"read {outcome.pattern} in order of names"
    print_message(f"{done}; {output} holds {counted(outcome.lines, 'line')}   to join them: {join}")


class RayDisplay:
    """Shows lines, rate and time left: on a terminal one line that is updated, elsewhere one line every few seconds."""

    def __init__(self) -> None:
        self.status = console.status("reading the text and connecting to the cluster ...")
        self.workers = 0
        self.last_line = 0.0

    def __enter__(self) -> RayDisplay:
        if console.is_terminal:
            self.status.start()
        return self

    def __exit__(self, *exit_details: object) -> None:
        self.status.stop()

    def __call__(self, event: Any) -> None:
        from regard.cluster.corpus import ShardDone, WorkerReady

        if isinstance(event, WorkerReady):
            self.workers += 1
            self._show(f"worker {self.workers} is ready: process {event.process} on {event.machine}")
        elif isinstance(event, ShardDone):
            rate = event.translated / max(event.seconds, 1e-9)
            total = event.translated + event.left
            left = format_duration(event.left / rate)
            self._show(
                f"{event.translated:,}/{counted(total, 'line')}  {rate:,.0f} lines/s  {left} left", last=not event.left
            )

    def _show(self, text: str, *, last: bool = False) -> None:
        if console.is_terminal:
            self.status.update(escape(printable(text)))
        elif last or time.monotonic() - self.last_line >= LINE_SECONDS:
            self.last_line = time.monotonic()
            print_message(text)


def translate(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run folder, finished or training, a checkpoint of it, or a pretrained model: de-en, en-de.",
            show_default=False,
        ),
    ],
    file: Annotated[
        str,
        typer.Argument(
            metavar="[INPUT]",
            help="Text to translate, one sentence per line, plain or gzip. Default: standard input.",
            show_default=False,
        ),
    ] = "-",
    output: Annotated[Path | None, typer.Argument(help="With --ray: the folder of the translated shards.")] = None,
    beam: Annotated[int | None, typer.Option(help="Beam size; 1 is greedy. Default: that of the recipe.")] = None,
    nbest: Annotated[
        int,
        typer.Option(help="Translations per line, as a list in which lines count from 0, as in Moses."),
    ] = 1,
    length_penalty: Annotated[
        float | None, typer.Option(help="alpha of Wu et al. 2016; 0 prefers short output. Default: that of the recipe.")
    ] = None,
    max_extra: Annotated[
        int | None, typer.Option(help="Maximum of output tokens minus input tokens. Default: that of the recipe.")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Iterations of mask-predict. Default: that of the recipe.")
    ] = None,
    rescorer: Annotated[
        Path | None,
        typer.Option(
            "--rescorer", "--judge", help="A run whose model rescores the hypotheses of the beam.", show_default=False
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    int8: Annotated[
        bool, typer.Option("--int8", help="Multiply 8-bit integers: faster on a CPU, nearly the same output.")
    ] = False,
    threads: Annotated[int, typer.Option(help="CPU threads. 0: PyTorch's default; with --ray, 1 per worker.")] = 0,
    ray: Annotated[
        bool,
        typer.Option("--ray", help="Translate files, a folder or a pattern, text or Parquet, with workers on Ray."),
    ] = False,
    workers: Annotated[int | None, typer.Option(help="With --ray: workers. Default: one per GPU, or per CPU.")] = None,
    shard_lines: Annotated[int | None, typer.Option(help="With --ray: lines per shard. Default: 8192.")] = None,
    column: Annotated[str | None, typer.Option(help="With --ray: the column of Parquet files. Default: text.")] = None,
) -> None:
    """Translate text line by line: line N of the output is the translation of line N. Empty lines stay empty.

    Examples:

      echo "Wo ist der Bahnhof?" | regard translate de-en

      echo "samedi 14 novembre 2026" | regard translate runs/dates

      regard translate runs/multi30k-en-de test.en.gz --beam 5 > test.de

      regard translate runs/multi30k-en-de test.en --int8         up to 1.5 times as fast on a CPU

      regard translate runs/multi30k-en-de test.en --nbest 4      prints: line, from 0 ||| translation ||| score

      regard translate de-en news.de.gz out --ray                 writes out/part-00000.txt ...; a second call resumes

      regard translate de-en 'news/*.parquet' out --ray --column body --workers 8
    """
    search = {
        "beam": beam, "nbest": nbest, "length_penalty": length_penalty, "max_extra": max_extra, "iterations": iterations,
    }  # fmt: skip
    own = {"workers": workers, "shard_lines": shard_lines, "column": column}
    if ray:
        if rescorer is not None:
            raise typer.BadParameter("--rescorer cannot be combined with --ray")
        if int8:
            raise typer.BadParameter("--int8 cannot be combined with --ray")
        translate_with_ray(run, file, output, search, device=device, threads=threads, **own)
        return
    refuse_without_ray(output=output, **own)
    from regard import api
    from regard.nn.device import use_threads

    use_threads(threads)
    translator = api.load_translator(run, "translate", device=device, warn=print_warning, rescorer=rescorer, int8=int8)
    # An n-best list counts its lines from 0, as that of Moses does, and so do warnings about it.
    first, warn = (1, print_warning) if nbest == 1 else (0, _warn_of_list)
    translator.warn = warn
    options = translator.options.replace(**search)
    for number, found in enumerate(translator.stream(_lines(file), options=options, first=first), start=first):
        for one in found[:nbest]:
            print(one.text if nbest == 1 else f"{number} ||| {one.text} ||| {one.score:.4f}")
        sys.stdout.flush()


def _warn_of_list(text: str) -> None:
    print_warning(f"{text} (counted from 0, as in the list)")


def _lines(file: str) -> Iterator[str]:
    from regard.text.corpus import decode_lines, stream_lines

    if file == "-":
        return decode_lines(sys.stdin.buffer, "standard input")  # type: ignore[arg-type]
    return stream_lines(Path(file))

"""regard translate, on this machine or with --ray on many."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.terminal import Terminated, command_name, print_message, print_warning
from regard.config import SearchOptions
from regard.errors import ConfigError
from regard.messages import counted


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
    """Shows workers, lines, rate and time left."""

    def __init__(self) -> None:
        from regard.cli.display import StatusLine

        self.status = StatusLine("reading the text and connecting to the cluster ...")
        self.workers = 0

    def __enter__(self) -> RayDisplay:
        self.status.__enter__()
        return self

    def __exit__(self, *exit_details: object) -> None:
        self.status.__exit__(*exit_details)

    def __call__(self, event: Any) -> None:
        from regard.cli.display import describe_lines
        from regard.cluster.corpus import ShardDone, WorkerReady

        if isinstance(event, WorkerReady):
            self.workers += 1
            self.status.show(f"worker {self.workers} is ready: process {event.process} on {event.machine}")
        elif isinstance(event, ShardDone):
            text = describe_lines(event.translated, event.translated + event.left, event.seconds)
            self.status.show(text, last=not event.left)


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
            help="Text to translate, one sentence per line, plain, gzip, xz or zstd. Default: standard input.",
            show_default=False,
        ),
    ] = "-",
    output: Annotated[Path | None, typer.Argument(help="With --ray: the folder of the translated shards.")] = None,
    to: Annotated[
        str | None,
        typer.Option(help="The language to translate into, of a model that has several.", show_default=False),
    ] = None,
    pivot: Annotated[
        str | None,
        typer.Option(help="Translate into this language first, and from there into --to.", show_default=False),
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option(help="A tag of the recipe (data.train.tag) in front of each line.", show_default=False),
    ] = None,
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
    protect: Annotated[
        bool | None,
        typer.Option(
            "--protect/--no-protect",
            help="Keep URLs, e-mail addresses, numbers, variables, tags, code and emoji as they are, and report lost ones. "
            "Default: if the model has placeholders.",
            show_default=False,
        ),
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

    Lines from a pipe are translated as they arrive. On a file, progress is shown unless the output goes to a terminal.

    Examples:

      echo "Wo ist der Bahnhof?" | regard translate de-en

      echo "samedi 14 novembre 2026" | regard translate runs/dates

      regard translate runs/multi30k-en-de test.en.gz --beam 5 > test.de

      regard translate runs/multi30k-en-de test.en --int8         up to 1.5 times as fast on a CPU

      regard translate runs/multi30k-en-de test.en --nbest 4      prints: line, from 0 ||| translation ||| score

      regard translate runs/multi30k-many test.en --to fr         a model of several languages (docs/mixing.md)

      regard translate runs/multi30k-many test.de --to fr --pivot en

      regard translate de-en news.de.gz out --ray                 writes out/part-00000.txt ...; a second call resumes

      regard translate de-en 'news/*.parquet' out --ray --column body --workers 8
    """
    search = {
        "beam": beam, "nbest": nbest, "length_penalty": length_penalty, "max_extra": max_extra, "iterations": iterations,
        "protect": protect,
    }  # fmt: skip
    own = {"workers": workers, "shard_lines": shard_lines, "column": column}
    if ray:
        if rescorer is not None:
            raise typer.BadParameter("--rescorer cannot be combined with --ray")
        if int8:
            raise typer.BadParameter("--int8 cannot be combined with --ray")
        if tag is not None or pivot is not None:
            raise typer.BadParameter("--tag and --pivot cannot be combined with --ray")
        translate_with_ray(run, file, output, search, device=device, threads=threads, to=to, **own)
        return
    refuse_without_ray(output=output, **own)
    from regard import loading
    from regard.nn.device import use_threads

    use_threads(threads)
    # An n-best list counts its lines from 0, as that of Moses does, and so do warnings about it.
    first, warn = (1, print_warning) if nbest == 1 else (0, _warn_of_list)
    translator = loading.load_translator(run, "translate", device=device, warn=warn, rescorer=rescorer, int8=int8).into(
        to, tag=tag, pivot=pivot
    )
    options = translator.options.replace(**search)
    written = asked = False
    with _progress(file) as progress:
        for block in _blocks(file):
            asked = asked or any(line.strip() for line in block)
            for found in translator.stream(block, options=options, first=first, on_ready=progress):
                written = written or any(one.text.strip() for one in found)
                if found[0].lost:
                    warn(f"the translation of line {first} lacks {', '.join(found[0].lost)}")
                for one in found[:nbest]:
                    print(one.text if nbest == 1 else f"{first} ||| {one.text} ||| {one.score:.4f}")
                first += 1
            sys.stdout.flush()
    if asked and not written:
        print_warning("all translations are empty: the model has learned too little to write any")


def _warn_of_list(text: str) -> None:
    print_warning(f"{text} (counted from 0, as in the list)")


def _blocks(file: str) -> Iterator[list[str]]:
    """Yield the lines of the input in blocks that are translated together."""
    from regard.decoding.translator import READ_AHEAD
    from regard.text.arriving_lines import read_blocks
    from regard.text.lines import stream_lines
    from regard.text.text_report import TextReport

    report = TextReport()
    if file == "-":
        yield from read_blocks(sys.stdin.buffer, "standard input", most=READ_AHEAD, report=report)  # type: ignore[arg-type]
    else:
        lines = stream_lines(Path(file), report)
        while block := list(islice(lines, READ_AHEAD)):
            yield block
    for sentence in report.sentences():
        print_warning(sentence)


def _progress(file: str) -> AbstractContextManager[Callable[[int], None]]:
    """Return what shows the progress on a file. On a terminal translations do, and the end of a pipe is not known."""
    from regard.cli.display import LineProgress
    from regard.text.arriving_lines import count_file_lines, count_lines

    if sys.stdout.isatty():
        return nullcontext(lambda count: None)
    total = count_lines(sys.stdin.buffer) if file == "-" else count_file_lines(Path(file))  # type: ignore[arg-type]
    return nullcontext(lambda count: None) if total is None else LineProgress(total)

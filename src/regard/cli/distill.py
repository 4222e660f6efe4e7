"""regard distill"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import format_duration, print_message, print_warning
from regard.messages import counted


def distill(
    teacher: Annotated[
        Path, typer.Argument(help="A run folder, or a pretrained model: de-en, en-de, zh-en.", show_default=False)
    ],
    out: Annotated[Path, typer.Argument(help="Folder of the new corpus.", show_default=False)],
    source: Annotated[
        Path | None, typer.Option(help="Sentences to translate. Default: the training text of the teacher.")
    ] = None,
    reference: Annotated[Path | None, typer.Option(help="Human translations of --source, line by line.")] = None,
    to: Annotated[
        str | None,
        typer.Option(help="Target language, for a multilingual model.", show_default=False),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of data files. Default: REGARD_DATA.")] = None,
    beam: Annotated[int | None, typer.Option(help="Beam size. Default: that of the recipe.")] = None,
    closest: Annotated[
        bool,
        typer.Option(
            "--closest", help="Take the hypothesis of the beam with the best sentence BLEU against the reference."
        ),
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Write a teacher's translations of a corpus as a new corpus with a card, to train students on.

    If it is stopped, the same command resumes.

    Examples:

      regard distill runs/multi30k-en-de distilled --data ~/data

      regard distill runs/mine out --source more.de --reference more.en --closest

      # with train = { source = "out/source.txt", target = "out/target.txt" }
      regard train student.toml
    """
    from regard.distilling import distill as write

    began: list[tuple[float, int]] = []  # time of each call, and sentences done by then

    def progress(done: int, total: int) -> None:
        began.append((time.monotonic(), done))
        (first, before), (now, _) = began[0], began[-1]
        left = ""
        if done > before:
            left = f", {format_duration((total - done) * (now - first) / (done - before))} left"
        print_message(f"{done:,} of {counted(total, 'sentence')}{left}")

    folder = write(
        teacher,
        out,
        source=source,
        reference=reference,
        to=to,
        data=data,
        beam=beam,
        closest=closest,
        device=device,
        progress=progress,
        warn=print_warning,
    )
    print_message(f"wrote {folder}: source.txt, target.txt, card.md")

"""regard distill"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.clock import clock
from regard.cli.say import say


def distill(
    teacher: Annotated[Path, typer.Argument(help="A run folder, or de-en, en-de.", show_default=False)],
    out: Annotated[Path, typer.Argument(help="The folder that the new corpus goes to.", show_default=False)],
    source: Annotated[
        Path | None, typer.Option(help="Sentences to translate, instead of what the teacher was trained on.")
    ] = None,
    reference: Annotated[Path | None, typer.Option(help="Their translations by people, line by line.")] = None,
    data: Annotated[Path | None, typer.Option(help="Where data files are; or set REGARD_DATA.")] = None,
    beam: Annotated[int | None, typer.Option(help="Beams; as the recipe says if not given.")] = None,
    closest: Annotated[
        bool, typer.Option("--closest", help="Of a beam take what is most like the reference (sentence BLEU).")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Write a teacher's translations of a corpus as a corpus of their own, with a card: for students to learn from.

    Stopped, the same command goes on where it was.

    Examples:

      regard distill runs/multi30k-en-de distilled --data ~/data

      regard distill runs/mine distilled --source more.de --reference more.en --closest

      regard train multi30k-en-de-nat data.train.source=distilled/source.txt data.train.target=distilled/target.txt
    """
    from regard.distilling import distill as write

    began: list[tuple[float, int]] = []  # when, and how many were there already

    def progress(done: int, total: int) -> None:
        began.append((time.monotonic(), done))
        (first, before), (now, _) = began[0], began[-1]
        left = f", {clock((total - done) * (now - first) / (done - before))} left" if done > before else ""
        say(f"{done:,} of {total:,} sentences{left}")

    folder = write(
        teacher,
        out,
        source=source,
        reference=reference,
        data=data,
        beam=beam,
        closest=closest,
        device=device,
        progress=progress,
    )
    say(f"written to {folder}: source.txt, target.txt, card.md")

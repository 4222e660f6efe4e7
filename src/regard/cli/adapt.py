"""regard adapt"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.terminal import print_error, print_message, printable
from regard.errors import ConfigError


def adapt(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run folder, a checkpoint of it, or a pretrained model: de-en, en-de, zh-en.", show_default=False
        ),
    ],
    text: Annotated[
        list[Path],
        typer.Option(
            "--with",
            help="Your pairs: .tsv, .csv, .jsonl, .tmx, .po or .parquet; repeatable. With --reference: one source per line.",
            show_default=False,
        ),
    ],
    reference: Annotated[
        Path | None, typer.Option(help="Translations of the sources, line by line.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The new run folder. Default: runs/RUN-adapted.", show_default=False)
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE,TARGET", help="What the sides of the file are called: names, numbers or languages."
        ),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Pairs to test on. Default: a tenth of your pairs.", show_default=False)
    ] = None,
    general: Annotated[
        list[Path] | None,
        typer.Option(help="Pairs of the general domain; repeatable. Default: the text of RUN, if it is in --data."),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the data files of RUN. Default: REGARD_DATA.")] = None,
    replay: Annotated[
        Literal["auto", "self", "none"],
        typer.Option(
            help="Which of the model's own translations to mix in, to prevent forgetting: of general text (auto), "
            "of your text (self), or none."
        ),
    ] = "auto",
    minutes: Annotated[float, typer.Option(help="Limit on training.")] = 15.0,
    steps: Annotated[int | None, typer.Option(help="Limit on the steps of a candidate.", show_default=False)] = None,
    bound: Annotated[
        float, typer.Option(help="Largest accepted drop of chrF on the general dev set, in points.")
    ] = 0.5,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Accept a model whose general score falls significantly.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Random seed of the split and of training.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Adapt a translation model to your own text, without losing what it could do, and show what changed.

    Keeps a part of your pairs for testing, mixes in text against forgetting, tries learning rates and lengths, and chooses
    by dev score. Then it prints scores on your text and on general text, before and after, with their significance, and
    the sentences that changed most. adaptation.md in the new run folder has the same.

    Examples:

      regard adapt en-de --with my.tmx --out runs/mine

      regard adapt en-de --with my.csv --columns english,german --general news.tsv

      regard adapt en-de --with my.en --reference my.de --data ~/data

      regard adapt runs/mine --with more.tsv --replay none --accept-loss

    If it is stopped, the same command resumes. Exit status: 0 if the model is accepted; 1 if its general score falls
    significantly (it is kept in the folder OUT-rejected), or after an error; 2 for wrong usage.
    """
    given = [
        "regard",
        "adapt",
        run.name if run.is_absolute() else str(run),
        *(part for file in text for part in ("--with", file.name)),
    ]
    given += ["--reference", reference.name] if reference else []
    given += ["--columns", columns] if columns else []
    given += ["--test", test.name] if test else []
    given += [part for file in general or () for part in ("--general", file.name)]
    given += ["--replay", replay] if replay != "auto" else []
    given += ["--minutes", f"{minutes:g}"] if minutes != 15 else []
    given += ["--steps", str(steps)] if steps else []
    given += ["--bound", f"{bound:g}"] if bound != 0.5 else []
    given += ["--accept-loss"] if accept_loss else []
    given += ["--seed", str(seed)] if seed != 1 else []
    sides = column_names(columns)
    from regard.adapting.adapt import adapt as run_adapt

    done = run_adapt(
        run,
        text,
        out=out,
        reference=reference,
        columns=sides,
        test=test,
        general=general or (),
        data=data,
        replay=replay,
        minutes=minutes,
        steps=steps,
        bound=bound,
        accept_loss=accept_loss,
        seed=seed,
        device=device,
        command=shlex.join(given),
        tell=print_message,
    )
    print(done.as_json() if as_json else printable(done.as_text()), end="" if as_json else "\n")
    if not done.accepted:
        hint = "" if accept_loss else ", and --accept-loss accepts a loss on general text"
        print_error(f"the model is not accepted; it is kept as {done.run}{hint}")
        raise typer.Exit(1)
    print_message(f"done: {done.run}   try: regard translate {done.run}")


def column_names(columns: str | None) -> tuple[str | int, str | int] | None:
    """Return the two names or numbers of columns."""
    if columns is None:
        return None
    names = [name.strip() for name in columns.split(",")]
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise ConfigError(f"--columns is {columns!r}; name the source and the target, as in en,de or 1,2")
    one, other = (int(name) if name.isdecimal() else name for name in names)
    if isinstance(one, int) != isinstance(other, int):
        raise ConfigError(f"--columns is {columns!r}; give two names or two numbers")
    return one, other

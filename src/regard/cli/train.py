"""regard train"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.say import own_name, say, warn
from regard.cli.stopping import StopRequest
from regard.recipe_files import load_recipe, shipped_recipes
from regard.toml import dump_toml, to_table

RECIPES = ", ".join(shipped_recipes())


def train(
    recipe: Annotated[
        str, typer.Argument(help=f"A .toml file, or the name of a shipped recipe: {RECIPES}.", show_default=False)
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings laid over the recipe.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder; runs/RECIPE if not given.")] = None,
    data: Annotated[Path | None, typer.Option(help="Where data files are; or set REGARD_DATA.")] = None,
    accept: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="A setting that may differ from the run's own; repeat it.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the resolved recipe and do nothing.")] = False,
) -> None:
    """Train a recipe; go on where it stopped if the run folder holds an unfinished run.

    Examples:

      regard train dates

      regard train multi30k-en-de --data ~/data train.steps=2000 model.preset=small

      regard train my.toml --out runs/mine data.train.source=my.de data.train.target=my.en

      regard train dates train.steps=2000 --accept train.steps      an unfinished run, to be longer now

      regard train dates --show                     every setting, as TOML

    Ctrl-C, SIGTERM and SIGHUP finish the step, save a checkpoint and stop; the same command resumes from there.

    Exit status: 0 the run is finished; 1 an error, explained in one sentence; 2 wrong usage; stopped and unfinished: 130
    after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP (under nohup SIGHUP is ignored).
    """
    overrides = overrides or []
    resolved = load_recipe(recipe, overrides)  # a mistake in it is told before torch takes its seconds to import
    from regard import api
    from regard.cli.display import make_display
    from regard.cli.track import Board
    from regard.tasks.setup import resolve
    from regard.training.events import Event

    if show:
        print(dump_toml(to_table(resolve(resolved))))
        return
    out = out or Path("runs") / resolved.name
    board = Board(out / "tensorboard") if resolved.train.tensorboard else None
    with StopRequest() as stop, make_display() as display:

        def listen(event: Event) -> None:
            display(event)
            if board is not None:
                board(event)

        outcome = api.train(
            recipe, out=out, overrides=overrides, data=data, listen=listen, stop=stop, accept=accept or ()
        )
    if not outcome.trained:
        warn(f"{outcome.run} is finished already; name another folder with --out to train again")
    elif outcome.finished:
        say(f"done: {outcome.run}   try: {own_name()} evaluate {outcome.run}")
    else:
        say(f"stopped; go on with: {own_name()} {shlex.join(sys.argv[1:])}")
        raise typer.Exit(stop.status)

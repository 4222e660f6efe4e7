"""regard train"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import StopRequest, command_name, format_duration, print_message, print_warning
from regard.recipe_files import load_recipe, shipped_recipes
from regard.toml import dump_toml, to_table


def train(
    recipe: Annotated[str, typer.Argument(help="The name of an included recipe, or a .toml file.", show_default=False)],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings that replace those of the recipe.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder. Default: runs/RECIPE.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of data files. Default: REGARD_DATA.")] = None,
    accept: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Let this setting of a run change; repeatable.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the resolved recipe and exit.")] = False,
) -> None:
    """Train a recipe; resume if the run folder holds an unfinished run.

    Included recipes: SHIPPED_RECIPES.

    Examples:

      regard train dates

      regard train multi30k-en-de --data ~/data train.steps=2000

      regard train my.toml --out runs/mine model.preset=small

      # files of other formats: docs/corpora.md
      regard train my.toml 'data.train={pairs="memory.tmx"}' data.on_error=skip

      # change the length of a run; continue a finished one
      regard train dates train.steps=2000 --accept train.steps

      # print every setting as TOML
      regard train dates --show

    Every setting of a recipe: docs/settings.md.

    After Ctrl-C, SIGTERM or SIGHUP, training finishes the step, saves a checkpoint and stops. The same command resumes.

    Exit status: 0 if the run is finished; 1 after an error, explained in one sentence; 2 for wrong usage; if stopped, 130
    after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP (nohup ignores SIGHUP).
    """
    overrides = overrides or []
    # Report mistakes in the recipe before the import of torch, which takes seconds.
    warnings: list[str] = []
    resolved = load_recipe(recipe, overrides, warn=warnings.append)
    from regard import api
    from regard.cli.display import TensorBoardWriter, make_display
    from regard.cli.hints import command_after_training
    from regard.tasks.recipe_checks import resolve
    from regard.training.events import Event

    spelled_out = resolve(resolved)  # refuses unknown names, about which no warning says anything useful
    for warning in warnings:
        print_warning(warning)
    if show:
        print(dump_toml(to_table(spelled_out)))
        return
    began = time.monotonic()
    out = out or Path("runs") / resolved.name
    tensorboard = TensorBoardWriter(out / "tensorboard") if resolved.train.tensorboard else None
    with StopRequest() as stop, make_display() as display:

        def listen(event: Event) -> None:
            display(event)
            if tensorboard is not None:
                tensorboard(event)

        outcome = api.train(
            recipe,
            out=out,
            overrides=overrides,
            data=data,
            listen=listen,
            stop=stop,
            accept=accept or (),
            warn=lambda text: None,  # printed when the recipe was loaded
        )
    if not outcome.trained:
        return
    if outcome.finished:
        print_message(f"trained in {format_duration(time.monotonic() - began)}")
        command = command_after_training(outcome.run.recipe(), outcome.run.path, data=data)
        print_message(f"done: {outcome.run}   try: {command}")
    else:
        print_message(f"stopped; resume with: {command_name()} {shlex.join(sys.argv[1:])}")
        raise typer.Exit(stop.status)


# The list of recipes in --help is that of the package.
train.__doc__ = (train.__doc__ or "").replace("SHIPPED_RECIPES", ", ".join(shipped_recipes()))

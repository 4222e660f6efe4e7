"""regard learn start, check and notebook"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import print_message
from regard.errors import ConfigError

FOLDER = Path("exercises")


def start(
    name: Annotated[str | None, typer.Argument(help="The exercise.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Write all exercises.")] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.")] = FOLDER,
) -> None:
    """Write the file that an exercise starts from, with its task. Without a name, list the exercises.

    Examples:

      regard learn start

      regard learn start attention

      regard learn start --all --out my-exercises
    """
    from regard.learn.exercise_files import exercises, write_stubs

    if name is not None and every:
        raise typer.BadParameter("give the name of an exercise, or --all")
    if name is None and not every:
        for exercise in exercises().values():
            print(f"{exercise.name:20} {exercise.title}")
        return
    written, kept = write_stubs([name] if name is not None else list(exercises()), out)
    if name is not None and kept:
        raise ConfigError(f"{kept[0]} is there already; remove it, or name another folder with --out")
    for path in kept:
        print_message(f"kept {path}, which was there already")
    for path in written:
        print_message(f"wrote {path}")
    what = name or "NAME"
    print_message(f"the task is at the top of each file; check it with: regard learn check {what} --folder {out}")


def check(
    name: Annotated[
        str | None, typer.Argument(help="The exercise. Default: all in the folder.", show_default=False)
    ] = None,
    folder: Annotated[Path, typer.Option(help="The folder of the exercises.")] = FOLDER,
) -> None:
    """Run the hidden tests of an exercise on your file, and say what is right and what is not.

    The file is run in a process of its own, which is stopped after a minute and may use 4 GB of memory (where the system
    can limit it). The exit status is 1 if a test is wrong.

    Examples:

      regard learn check attention

      regard learn check

      regard learn check attention --folder my-exercises
    """
    from regard.learn.check import check_folder

    checks = check_folder(name, folder)
    for one in checks:
        print(one.text())
    if not all(one.passed for one in checks):
        raise typer.Exit(1)


def notebook(
    name: Annotated[str, typer.Argument(help="A chapter, such as exercises, or an exercise.", show_default=False)],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write. Default: NAME.ipynb.")] = None,
) -> None:
    """Write a chapter or an exercise as a Jupyter notebook: its text, and its code as cells that run.

    Examples:

      regard learn notebook attention

      regard learn notebook exercises --out exercises.ipynb
    """
    from regard.learn.notebook import notebook_text

    path = out or Path(f"{name}.ipynb")
    text = notebook_text(name)
    if path.exists():
        raise ConfigError(f"{path} is there already; remove it, or name another file with --out")
    path.write_text(text, encoding="utf-8")
    print_message(f"wrote {path}")

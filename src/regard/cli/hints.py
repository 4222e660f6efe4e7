"""Commands to try next, which work as they are printed."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from regard.cli.terminal import command_name
from regard.config import Bitext, Recipe
from regard.tasks import task_of
from regard.text.bitext import data_folders


def command_after_training(recipe: Recipe, run: Path, *, data: Path | None) -> str:
    """Return the command that scores a run on its test sets; without test sets, one that uses its model."""
    if not recipe.data.test:
        return command_that_predicts(recipe, run)
    folder = data or _folder_to_allow(recipe)
    option = [] if folder is None else ["--data", str(folder)]
    return f"{command_name()} {shlex.join(['evaluate', str(run), *option])}"


def command_that_predicts(recipe: Recipe, run: Path) -> str:
    """Return a command that uses a run's model and reads no file that its recipe names."""
    if task_of(recipe).name == "translation":
        into = ["--to", recipe.data.target_languages[0]] if recipe.data.multilingual else []
        return f'echo "a sentence" | {command_name()} {shlex.join(["translate", str(run), *into])}'
    return f"{command_name()} {shlex.join(['evaluate', str(run)])} --source INPUTS --reference OUTPUTS"


def _folder_to_allow(recipe: Recipe) -> Path | None:
    """Return the folder of the test files if `evaluate` would refuse to read them there; see `refuse_outside`."""
    names = [name for one in recipe.data.test.values() for name in one.names(*Bitext.FILES)]
    allowed = [os.path.abspath(folder) for folder in data_folders(None, None)]
    outside = [
        Path(name).parent
        for name in names
        if Path(name).is_absolute() and not any(Path(name).is_relative_to(folder) for folder in allowed)
    ]
    return Path(os.path.commonpath(outside)) if outside else None

"""The test sets that the recipe of a run names, and files of pairs in their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.config import Recipe
from regard.errors import DataError
from regard.tasks.base import Task
from regard.tasks.corpus import load_tagged
from regard.text.bitext import data_folders, refuse_outside
from regard.text.corpus import Pair, read_pairs
from regard.text.languages import languages_of
from regard.text.text_report import TextReport


def recipe_test_sets(
    task: Task[Any], run: Path | str, *, to: str | None, data: Path | str | None, report: TextReport
) -> dict[str, list[Pair]]:
    """Return the pairs of each test set that the recipe of a run names; with `to`, of those in this language."""
    table, folders = task.recipe.data, data_folders(data, None)
    for bitext in table.test.values():
        refuse_outside(bitext, folders, recipe_of=str(run))
    sets = {
        name: task.with_files(load_tagged(bitext, table, folders, report), folders)
        for name, bitext in table.test.items()
        if to is None or (bitext.languages or ("", ""))[1] == to
    }
    if not sets:
        raise DataError(
            f"the recipe names no test set{'' if to is None else f' in {to!r}'}; give --pairs, or --source and --reference"
        )
    return sets


def read_test_pairs(
    path: Path, recipe: Recipe | None, run: Path | str, *, to: str | None, report: TextReport
) -> list[Pair]:
    """Return the pairs of one file. Its sides may be named by the languages of a run, those with `to` as the target."""
    if recipe is None:
        return read_pairs(path, report=report)
    known = [found for found in recipe.data.language_pairs if found[1] == to]
    languages = known[0] if known else languages_of(recipe.data, Path(run).name)
    return read_pairs(path, languages=languages, report=report)

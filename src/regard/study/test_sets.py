"""The dev set and the test sets of a study, read for scoring outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.config import Recipe
from regard.study.cells import cell_of, recipe_of_cell
from regard.study.records import CellRecord
from regard.study.study_file import VALID, Study
from regard.tasks import task_of
from regard.tasks.base import Task
from regard.tasks.corpus import load_tagged, read_valid
from regard.text.bitext import new_report
from regard.text.pair import Pair


def task_and_sets(study: Study, record: CellRecord, folders: list[Path]) -> tuple[Task[Any], dict[str, list[Pair]]]:
    """Return the task of a study, and the pairs of its sets, whose files are in these folders."""
    task = task_of(recipe_of_cell(study, cell_of(record)))
    return task, read_sets(task, folders)


def read_sets(task: Task[Any], folders: list[Path]) -> dict[str, list[Pair]]:
    """Return the pairs of the dev set, if there is one, and of all test sets, by name."""
    recipe = task.recipe
    dev = {VALID: task.with_files(_read_dev(task, recipe, folders), folders)} if recipe.data.dev_sets else {}
    return dev | read_test_sets(task, folders)


def read_test_sets(task: Task[Any], folders: list[Path]) -> dict[str, list[Pair]]:
    """Return the pairs of all test sets, by name."""
    data, report = task.recipe.data, new_report(task.recipe.data)
    return {
        name: task.with_files(load_tagged(text, data, folders, report), folders) for name, text in data.test.items()
    }


def _read_dev(task: Task[Any], recipe: Recipe, folders: list[Path]) -> list[Pair]:
    if any(one.hold_out for one in recipe.data.dev_sets):
        return task.read(folders).valid
    return read_valid(recipe, folders, new_report(recipe.data))

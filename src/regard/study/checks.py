"""Checks of a study before anything is trained: every recipe is complete, its files exist, its metric can be computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from regard.config import Bitext, Recipe
from regard.errors import ConfigError, did_you_mean
from regard.metrics import PROBABILITIES, metrics_of
from regard.recipe_files import recipe_folder
from regard.study.study_file import VALID, Study, candidates_of, recipe_of
from regard.tasks import task_of
from regard.tasks.recipe_checks import resolve
from regard.text.bitext import babi_files, data_folders, find_store, text_files


def check_study(
    study: Study, *, data: Path | str | None = None, warn: Callable[[str], None] = lambda text: None
) -> None:
    """Raise an error in one sentence if a cell of the study could not be trained or scored.

    `warn` receives each sentence about settings that are probably not meant once.
    """
    recipes = check_recipes(study, warn=warn)
    for row, recipe in recipes.items():
        _find_files(recipe, data_folders(data, recipe_folder(study.recipe_name(row))))


def check_recipes(study: Study, *, warn: Callable[[str], None] = lambda text: None) -> dict[str, Recipe]:
    """Return a recipe of each row. Raise ConfigError for the first of all recipes that does not fit."""
    warnings: dict[str, None] = {}
    found = {}
    for row in study.rows:
        candidates = candidates_of(study, study.rows[row].like or row)
        for candidate in candidates:
            recipe = recipe_of(study, row, candidate, study.seeds[0], warn=lambda text: warnings.setdefault(text))
            try:
                _check_recipe(study, resolve(recipe), chooses=len(candidates) > 1)
            except ConfigError as error:
                raise ConfigError(f"the row {row!r}: {error}") from error
            found[row] = recipe
    if study.metric == "perplexity" and len({repr(recipe.tokenizer) for recipe in found.values()}) > 1:
        raise ConfigError(
            "study.metric is 'perplexity', which is per token, but the rows have different tokenizers; choose another metric"
        )
    for text in warnings:
        warn(text)
    return found


def _check_recipe(study: Study, recipe: Recipe, *, chooses: bool) -> None:
    task = task_of(recipe)
    known = ["perplexity", *(metric.name for metric in metrics_of(task.compares, recipe.evaluate.metrics))]
    known += ["word_perplexity"] if task.compares == PROBABILITIES else []
    if study.metric not in known:
        raise ConfigError(
            f"study.metric is {study.metric!r}, which is not computed; {did_you_mean(study.metric, known)}"
        )
    if VALID in recipe.data.test:
        raise ConfigError(f"a test set of the recipe is called {VALID!r}, which is the dev set in a study; rename it")
    if chooses and not recipe.data.dev_sets:
        raise ConfigError("candidates are chosen on the dev set, and the recipe has none; name one in data.valid")
    tests = [*recipe.data.test, *([VALID] if recipe.data.dev_sets else [])]
    for name in study.tests or ():
        if name not in tests:
            raise ConfigError(f"study.tests has {name!r}, which the recipe has not; {did_you_mean(name, tests)}")
    if not (recipe.data.test if study.tests is None else study.tests):
        raise ConfigError('the recipe names no test set; name one in data.test, or set tests = ["valid"]')


def _find_files(recipe: Recipe, folders: list[Path]) -> None:
    """Raise DataError if a file of the recipe is missing."""
    for bitext in (*recipe.data.corpora, *recipe.data.dev_sets, *recipe.data.test.values()):
        if bitext.store is not None:
            find_store(bitext.store, folders)
        elif bitext.babi is not None:
            babi_files(bitext, folders, recipe.data)
        elif bitext.names(*Bitext.FILES):
            text_files(bitext, folders, recipe.data)

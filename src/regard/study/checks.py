"""Checks of a study before anything is trained.

Every recipe is complete, its files exist, its metric can be computed, and all rows have the same test sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from regard.config import Bitext, DataConfig, Recipe
from regard.errors import ConfigError, did_you_mean
from regard.metrics import METRICS, PROBABILITIES, metrics_of
from regard.recipe_files import recipe_folder
from regard.study.study_file import VALID, Study, candidates_of, canonical, recipe_of
from regard.tasks import task_of
from regard.tasks.corpus import load_tagged
from regard.tasks.recipe_checks import resolve
from regard.text.bitext import babi_files, data_folders, find_store, new_report, pairs_fingerprint, text_files
from regard.toml import to_table


def check_study(
    study: Study, *, data: Path | str | None = None, warn: Callable[[str], None] = lambda text: None
) -> None:
    """Raise an error in one sentence if a cell of the study could not be trained or scored.

    `warn` receives each sentence about settings that are probably not meant once.
    """
    sets: dict[str, _Sets] = {}  # by the text of the data table and the folders, which most recipes of a study share
    by_row: dict[str, list[_Sets]] = {}
    for row, recipes in check_recipes(study, warn=warn).items():
        folders = data_folders(data, recipe_folder(study.recipe_name(row)))
        for recipe in recipes:
            key = repr((recipe.data, folders))
            if key not in sets:
                find_files(
                    (*recipe.data.corpora, *recipe.data.dev_sets, *recipe.data.test.values()), recipe.data, folders
                )
                sets[key] = _Sets(recipe, folders)
            by_row.setdefault(row, []).append(sets[key])
    if len(sets) > 1:
        _refuse_other_sets(study, by_row)


def check_recipes(study: Study, *, warn: Callable[[str], None] = lambda text: None) -> dict[str, list[Recipe]]:
    """Return the recipes of all candidates of each row. Raise ConfigError for the first that does not fit."""
    warnings: dict[str, None] = {}
    found: dict[str, list[Recipe]] = {}
    for row, table in study.rows.items():
        for metric in table.published:
            METRICS.get(metric, where=f"study.rows.{row}.published")
        candidates = candidates_of(study, table.like or row)
        for candidate in candidates:
            recipe = recipe_of(study, row, candidate, study.seeds[0], warn=lambda text: warnings.setdefault(text))
            try:
                _check_recipe(study, resolve(recipe), chooses=len(candidates) > 1)
            except ConfigError as error:
                raise ConfigError(f"the row {row!r}: {error}") from error
            found.setdefault(row, []).append(recipe)
    tokenizers = {repr(recipe.tokenizer) for recipes in found.values() for recipe in recipes}
    if study.metric == "perplexity" and len(tokenizers) > 1:
        raise ConfigError(
            "study.metric is 'perplexity', which is per token, but the rows have different tokenizers; choose another metric"
        )
    _refuse_other_scoring(study, found)
    rows: dict[str, str] = {}  # by their settings
    for row, recipes in found.items():
        first = rows.setdefault(canonical([to_table(recipe) for recipe in recipes]), row)
        if first != row:
            warnings[
                f"the rows {first!r} and {row!r} have the same settings, so a difference between their scores is noise"
            ] = None
    for text in warnings:
        warn(text)
    return found


def _refuse_other_scoring(study: Study, recipes: Mapping[str, Sequence[Recipe]]) -> None:
    """Raise ConfigError if a metric would be computed in two ways. Recipes may have different lists of metrics."""
    ways = {
        row: {msgspec.structs.replace(recipe.evaluate, metrics=None) for recipe in own} for row, own in recipes.items()
    }
    for row, own in ways.items():
        if len(own | ways[study.baseline]) > 1:
            both = f"the row {row!r} and the row {study.baseline!r}"
            raise ConfigError(
                f"{both if len(own) == 1 else f'the candidates of the row {row!r}'} differ in [evaluate], so their scores "
                "could not be compared; put these settings into [settings] of the study"
            )


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


def find_files(texts: Iterable[Bitext], data: DataConfig, folders: list[Path]) -> list[Path]:
    """Return the files of corpora and test sets. Raise DataError if one is missing."""
    found: list[Path] = []
    for text in texts:
        if text.store is not None:
            found.append(find_store(text.store, folders))
        elif text.babi is not None:
            found += babi_files(text, folders, data)
        elif text.names(*Bitext.FILES):
            found += text_files(text, folders, data)
    return found


class _Sets:
    """The dev set and the test sets of a recipe, as hashes that are computed when they are asked for."""

    def __init__(self, recipe: Recipe, folders: list[Path]) -> None:
        self.data, self.folders = recipe.data, folders

    @cached_property
    def tests(self) -> dict[str, str]:
        """A hash of each test set, by name."""
        return {name: self._hash([text]) for name, text in self.data.test.items()}

    @cached_property
    def valid(self) -> str:
        """A hash of the dev set. What is held out is not read: training text may be large, so its table is compared."""
        if any(one.hold_out for one in self.data.dev_sets):
            return repr((self.data.corpora, self.data.dev_sets, self.data.on_error, self.data.decontaminate))
        return self._hash(self.data.dev_sets)

    def _hash(self, texts: Sequence[Bitext]) -> str:
        report = new_report(self.data)
        pairs = [pair for text in texts for pair in load_tagged(text, self.data, self.folders, report)]
        return str(pairs_fingerprint(pairs)["sha256"])


def _refuse_other_sets(study: Study, by_row: Mapping[str, Sequence[_Sets]]) -> None:
    """Raise ConfigError if rows would be scored on different pairs, or candidates of a row be chosen on different ones."""
    first = by_row[study.baseline][0]
    tests = list(first.data.test) if study.tests is None else study.tests
    for row, sets in by_row.items():
        for own in sets:
            for name in tests:
                here, there = (own.valid, first.valid) if name == VALID else (own.tests.get(name), first.tests[name])
                if here != there:
                    where = "the dev set" if name == VALID else f"the test set {name}"
                    raise ConfigError(
                        f"the row {row!r} has other pairs in {where} than the row {study.baseline!r}, so their scores "
                        "could not be compared; name the same files"
                    )
        if len(sets) > 1 and len({own.valid for own in sets}) > 1:
            raise ConfigError(
                f"the candidates of the row {row!r} have different pairs in the dev set, so none could be chosen; name "
                "the same files"
            )

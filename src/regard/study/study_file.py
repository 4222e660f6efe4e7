"""A study as a TOML file: a question, a recipe, the rows that change it, the seeds, and the settings to choose per row."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from regard.config import Recipe, Struct
from regard.errors import ConfigError, did_you_mean
from regard.messages import counted
from regard.recipe_files import find_recipe, load_recipe, shipped_recipes
from regard.toml import dump_toml, flat_table, from_table, inline_toml, read_toml, to_table

VALID = "valid"  # the name of the dev set among the test sets of a study
MAX_ROWS, MAX_SEEDS, MAX_CANDIDATES, MAX_NAME = 500, 100, 200, 100
Settings = dict[str, Any]  # values of a recipe by dotted key, such as {"model.width": 128}


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise ValueError unless these can be the seeds of a study."""
    if not 0 < len(seeds) == len(set(seeds)) <= MAX_SEEDS or min(seeds) < 0:
        raise ValueError(f"seeds must name 1 to {MAX_SEEDS} seeds, each once, none below 0")


class StudyRow(Struct, frozen=True):
    """One row of the table: what it changes, and what was published about the same change."""

    group: str = ""  # rows of one group stand together
    recipe: str = ""  # in place of the study's
    settings: Settings = msgspec.field(default_factory=dict)  # in addition to those of the study
    choose: dict[str, list[Any]] | None = None  # in place of the study's
    like: str = ""  # another row above, whose choice this one is trained with
    published: dict[str, float] = msgspec.field(default_factory=dict)  # scores of a paper, by metric


class Study(Struct, frozen=True):
    """A study. `read_study` makes one whose tables are complete: a grid is spelled out as rows."""

    question: str  # that the study answers, in a sentence
    recipe: str  # the name of a shipped recipe, or a .toml file next to the study
    metric: str  # that is tested and that chooses candidates
    seeds: tuple[int, ...]  # every row is trained with each of them
    baseline: str = ""  # the row that all others are compared with; unset: the first
    tests: tuple[str, ...] | None = None  # test sets of the recipe, or "valid"; unset: all test sets
    settings: Settings = msgspec.field(default_factory=dict)  # of every row
    choose: dict[str, list[Any]] = msgspec.field(
        default_factory=dict
    )  # values to try for every row with a seed of their own; the best on the dev set stay
    rows: dict[str, StudyRow] = msgspec.field(default_factory=dict)
    grid: dict[str, list[Any]] = msgspec.field(
        default_factory=dict
    )  # in place of rows: every combination of these values is a row

    def check(self) -> None:
        if not self.question.strip() or not self.question.isprintable():
            raise ValueError("question must be one line of text")
        check_seeds(self.seeds)
        if self.tests is not None and not 0 < len(self.tests) == len(set(self.tests)):
            raise ValueError("tests must name at least one test set, each once")
        if bool(self.rows) == bool(self.grid):
            raise ValueError("a study has [rows.NAME] tables or a [grid], one of the two")
        if len(self.rows) > MAX_ROWS:
            raise ValueError(f"there are {len(self.rows):,} rows; at most {MAX_ROWS} are possible")
        if len({name.casefold() for name in self.rows}) < len(self.rows):
            raise ValueError("two rows have names that differ only in upper and lower case; rename one")
        for name in self.rows:
            if not name.strip() or not name.isprintable() or len(name) > MAX_NAME:
                raise ValueError(f"the name of a row must be one line of at most {MAX_NAME} characters")

    @property
    def choosing_seed(self) -> int:
        """The seed of candidates."""
        return seed_for_choosing(self.seeds)

    def recipe_name(self, row: str) -> str:
        """Return the recipe of a row."""
        return self.rows[row].recipe or self.recipe

    @property
    def row_names(self) -> list[str]:
        """The names of the rows, in the order of the file."""
        return list(self.rows)


def seed_for_choosing(seeds: Sequence[int]) -> int:
    """Return a seed that is none of these, so that the run that wins a choice is in no mean."""
    return next(seed for seed in itertools.count() if seed not in seeds)


def read_study(path: Path | str) -> Study:
    """Return the study in a file. Raise ConfigError for the first thing in it that does not fit."""
    path = Path(path)
    table = read_toml(path)
    for key in ("settings", "choose", "grid"):
        _flatten(table, key)
    for row in table["rows"].values() if isinstance(table.get("rows"), Mapping) else ():
        for key in ("settings", "choose"):
            _flatten(row, key)
    study = from_table(Study, table, where="study")
    _refuse_wrong_lists(study)
    _refuse_repeated_keys(study)
    if study.grid:
        study = msgspec.structs.replace(study, rows=_rows_of_grid(study.grid), grid={})
    study = with_recipes(study, lambda name: locate_recipe(path, name))
    study = msgspec.structs.replace(study, baseline=_baseline(study))
    for name in study.rows:
        _refuse_wrong_settings(study, name)
        for candidate in candidates_of(study, study.rows[name].like or name):
            recipe_of(study, name, candidate, study.seeds[0])
    return study


def study_toml(study: Study) -> str:
    """Return the file of a study. Settings keep their order, which tables and the folders of candidates depend on."""
    return dump_toml(to_table(study), ordered=("settings", "choose", "grid")) + "\n"


def _flatten(table: Any, key: str) -> None:
    """Give settings that are nested tables dotted keys, so that both ways to write them mean the same."""
    if isinstance(table, dict) and isinstance(table.get(key), Mapping):
        table[key] = flat_table(table[key], lists=False)


def _refuse_wrong_lists(study: Study) -> None:
    """Raise ConfigError for a grid or a choice without values, or with a value twice."""
    tables = {"study.grid": study.grid, "study.choose": study.choose}
    tables |= {f"study.rows.{name}.choose": row.choose or {} for name, row in study.rows.items()}
    for where, table in tables.items():
        for key, values in table.items():
            if not values or len({canonical(value) for value in values}) < len(values):
                raise ConfigError(f"{where} has {key} = {values!r}; name at least one value, each once")


def _refuse_repeated_keys(study: Study) -> None:
    """Raise ConfigError for a key that two tables of all rows have: one of its values would never be trained."""
    tables = {"study.settings": study.settings, "study.grid": study.grid, "study.choose": study.choose}
    for (one, own), (other, more) in itertools.combinations(tables.items(), 2):
        for key in own.keys() & more.keys():
            raise ConfigError(f"{one} and {other} both have {key}; remove it from one of them")


def _rows_of_grid(grid: Mapping[str, list[Any]]) -> dict[str, StudyRow]:
    """Return one row for every combination of values, named by them."""
    count = 1
    for values in grid.values():
        count *= len(values)
    if count > MAX_ROWS:
        raise ConfigError(f"study.grid has {count:,} combinations; at most {MAX_ROWS} are possible")
    found = {}
    for combination in itertools.product(*grid.values()):
        settings = dict(zip(grid, combination, strict=True))
        found[describe_settings(settings)] = StudyRow(settings=settings)
    if len(found) < count:
        raise ConfigError("study.grid has values that are written alike; write them differently, or use rows")
    return found


def with_recipes(study: Study, new_name: Callable[[str], str]) -> Study:
    """Return the study with other names of its recipes."""
    rows = {
        name: msgspec.structs.replace(row, recipe=new_name(row.recipe)) if row.recipe else row
        for name, row in study.rows.items()
    }
    return msgspec.structs.replace(study, recipe=new_name(study.recipe), rows=rows)


def locate_recipe(path: Path, name: str) -> str:
    """Return the recipe's name, or the path of its file, which is relative to that of the study."""
    if name in shipped_recipes() or not name.endswith(".toml"):
        find_recipe(name)
        return name
    file = path.parent / name
    if not file.is_file():
        raise ConfigError(f"the recipe is {name!r}, but there is no such file in {str(path.absolute().parent)!r}")
    return str(file.absolute())  # a process of a cell may be in another folder


def _baseline(study: Study) -> str:
    if study.baseline and study.baseline not in study.rows:
        raise ConfigError(
            f"study.baseline is {study.baseline!r}, which is no row; {did_you_mean(study.baseline, study.rows)}"
        )
    return study.baseline or study.row_names[0]


def _refuse_wrong_settings(study: Study, name: str) -> None:
    """Raise ConfigError if a row sets what the study itself decides."""
    row = study.rows[name]
    above = study.row_names[: study.row_names.index(name)]
    if row.like and (row.choose is not None or row.like not in above or study.rows[row.like].like):
        raise ConfigError(
            f"the row {name!r} has like = {row.like!r}; name a row above it that has no like itself, and leave out choose"
        )
    choose = _choose(study, row.like or name)
    for key in (*study.settings, *row.settings, *choose):
        if key == "train.seed":
            raise ConfigError("a study sets train.seed itself; name the seeds in seeds = [1, 2, 3]")
    for key in choose:
        if key in row.settings:
            own = row.choose is None and not row.like
            more = ", or give the row a choose of its own, as in choose = {}" if own else ""
            raise ConfigError(
                f"the row {name!r} sets {key}, and the study chooses it; remove it from the settings of the row{more}"
            )


def _choose(study: Study, row: str) -> dict[str, list[Any]]:
    own = study.rows[row].choose
    return study.choose if own is None else own


def candidates_of(study: Study, row: str) -> list[Settings]:
    """Return the settings to choose from for a row; one empty table if there is nothing, or if another row decides."""
    choose = {} if study.rows[row].like else _choose(study, row)
    count = 1
    for values in choose.values():
        count *= len(values)
    if count > MAX_CANDIDATES:
        raise ConfigError(
            f"the row {row!r} has {counted(count, 'candidate')} to choose from; at most {MAX_CANDIDATES} are possible"
        )
    return [dict(zip(choose, values, strict=True)) for values in itertools.product(*choose.values())]


def overrides_of(study: Study, row: str, candidate: Settings, seed: int) -> list[str]:
    """Return what a cell changes in the recipe, as `regard train` takes it."""
    merged = {**study.settings, **study.rows[row].settings, **candidate, "train.seed": seed}
    return [f"{key}={inline_toml(value)}" for key, value in merged.items()]


def recipe_of(
    study: Study, row: str, candidate: Settings, seed: int, *, warn: Callable[[str], None] = lambda text: None
) -> Recipe:
    """Return the recipe of a cell. `warn` receives a sentence about settings that are valid but probably not meant."""
    try:
        return load_recipe(study.recipe_name(row), overrides_of(study, row, candidate, seed), warn=warn)
    except ConfigError as error:
        raise ConfigError(f"the row {row!r}: {error}") from error


def describe_settings(settings: Settings) -> str:
    """Return settings as a short text, as in "lr 0.001, warmup_steps 4000"."""
    last = [key.rpartition(".")[2] for key in settings]
    names = last if len(set(last)) == len(last) else list(settings)
    return ", ".join(f"{name} {_plain(value)}" for name, value in zip(names, settings.values(), strict=True))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else canonical(value)


def canonical(value: Any) -> str:
    """Return a text that only equal values have; 1, 1.0 and true are three values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)

"""A search as a TOML file (`regard tune`): a recipe, the settings that may change, the number of trials, and the seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from regard.config import Struct
from regard.study.study_file import Settings, canonical, check_seeds, locate_recipe
from regard.toml import flat_table, from_table, read_toml

MAX_TRIALS, MAX_VALUES = 400, 100


class Range(Struct, frozen=True):
    """Numbers from `low` to `high`, both included. Whole numbers if both are; with `log`, factors are equally likely."""

    low: int | float
    high: int | float
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether it has whole numbers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def check(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError("low must be below high, and above 0 with log = true")


class Tuning(Struct, frozen=True):
    """A search: what may change, how it is judged, and how many trials there are."""

    recipe: str  # the name of an included recipe, or a .toml file next to this one
    metric: str  # on the dev set, which the trials are judged by
    search: dict[str, Range | list[Any]]  # by dotted key: a range, or a list of values
    trials: int = 20  # with a seed that is none of `seeds`; those that the recipe refuses count too
    seeds: tuple[int, ...] = (1, 2, 3)  # of the final comparison of the best trial with the recipe
    settings: Settings = msgspec.field(default_factory=dict)  # of every trial

    def check(self) -> None:
        if not 1 <= self.trials <= MAX_TRIALS:
            raise ValueError(f"trials must be from 1 to {MAX_TRIALS}")
        check_seeds(self.seeds)
        if not self.search:
            raise ValueError("search must name at least one key of the recipe, with a range or a list of values")
        for key, values in self.search.items():
            if key in self.settings or key == "train.seed":
                raise ValueError(f"{key} cannot be searched, because it is set")
            if isinstance(values, list) and not 2 <= len(set(map(canonical, values))) == len(values) <= MAX_VALUES:
                raise ValueError(f"the list of {key} must have 2 to {MAX_VALUES} values, each once")


def read_tuning(path: Path | str) -> Tuning:
    """Return the search in a file. Raise ConfigError for the first thing in it that does not fit."""
    path = Path(path)
    table = read_toml(path)
    if isinstance(table.get("settings"), Mapping):
        table["settings"] = flat_table(table["settings"], lists=False)
    tuning = from_table(Tuning, table, where="tune")
    return msgspec.structs.replace(tuning, recipe=locate_recipe(path, tuning.recipe))

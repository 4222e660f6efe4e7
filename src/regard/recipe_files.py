"""Recipe files: find and read them, merge them with their base, apply overrides, compare them.

Precedence: defaults, then the base, then the file, then `train.steps=500` on the command line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.config import Recipe
from regard.errors import ConfigError, did_you_mean
from regard.messages import counted, warn_caller
from regard.toml import flat_table, from_table, read_toml, to_table

# Settings of the machine and of the display, and where files are looked for: a run may resume with others.
NOT_THE_RUN = (
    *("train.threads", "train.device", "train.parallel", "train.log_every", "train.tensorboard", "train.keep"),
    *("data.folders", "data.origin"),
)
# The tables that every recipe has, and what may stand in them.
REQUIRED = {"data": 'train = { pairs = "train.tsv" }', "model": 'kind = "transformer"'}


def shipped_recipes() -> dict[str, Path]:
    """Return the files of the recipes in the package, by name."""
    return {path.stem: path for path in sorted((Path(__file__).parent / "recipes").glob("*.toml"))}


def find_recipe(name: str) -> Path:
    """Return the file of a recipe, given the name of a shipped one or the path of a .toml file."""
    shipped = shipped_recipes()
    if name in shipped:
        return shipped[name]
    if name.endswith(".toml"):
        if Path(name).is_file():
            return Path(name)
        raise ConfigError(
            f"no recipe file {name!r} here; give the path of a .toml file, or the name of a recipe of ours, such as dates"
        )
    raise ConfigError(
        f"no recipe is called {name!r}; {did_you_mean(name, shipped)} (a recipe of your own ends in .toml)"
    )


def recipe_folder(name: str) -> Path | None:
    """Return the folder of a recipe file, where its data may be; None for a shipped recipe, which has no data there."""
    path = find_recipe(name)
    return None if path in shipped_recipes().values() else path.parent


def load_recipe(name: str, overrides: Sequence[str] = (), *, warn: Callable[[str], None] = warn_caller) -> Recipe:
    """Return a recipe by its name or .toml file, with `dotted.key=value` overrides applied.

    `warn` receives one sentence about each setting that is valid but probably not meant.
    """
    refuse_no_list("overrides", overrides, example="train.steps=500")
    table = merged_table(find_recipe(name))
    before = table.get("model")
    # `model.kind` first: another kind empties the table that the other overrides fill.
    for override in sorted(overrides, key=lambda one: not one.startswith("model.kind=")):
        apply_override(table, override)
    for name, example in REQUIRED.items():
        if name not in table:
            raise ConfigError(f"the recipe has no [{name}] table; write, for example, [{name}], and below it {example}")
    _refuse_bare_file_names(table.get("data"))
    recipe = from_table(Recipe, table, where="")
    if isinstance(before, dict):
        _warn_of_dropped_keys(before, recipe.model, warn)
    warn_of_long_warmup(recipe, warn)
    return recipe


def refuse_no_list(name: str, given: Any, *, example: str) -> None:
    """Raise ConfigError if settings are given as a text or as a dict, and not as a list of texts."""
    if isinstance(given, str):
        raise ConfigError(f"{name} is the text {given!r}; put it into a list: {name}=[{given!r}]")
    if isinstance(given, Mapping):
        entries = [f"{key}={value}" for key, value in given.items()] if "=" in example else list(given)
        raise ConfigError(f"{name} is a dict; give a list of texts: {name}={entries!r}")
    for one in given:
        if not isinstance(one, str):
            raise ConfigError(f"{name} has {one!r}, which is not a text; write, for example, {example!r}")


def _refuse_bare_file_names(data: Any) -> None:
    """Raise ConfigError for a file name where a table that says what the file is belongs, and show the form that fits."""
    if not isinstance(data, dict):
        return
    for name in ("train", "valid"):
        if isinstance(data.get(name), str):
            raise ConfigError(
                f"data.{name} is {data[name]!r}; say what the file is: {name} = {{ pairs = {data[name]!r} }}, "
                "or name two files, source and target"
            )
    if isinstance(test := data.get("test"), str) or (
        isinstance(test, dict) and {"pairs", "source", "text"} & test.keys()
    ):
        raise ConfigError('data.test holds test sets by name; write, for example, test.mine = { pairs = "test.tsv" }')


def _warn_of_dropped_keys(before: dict[str, Any], after: dict[str, Any], warn: Callable[[str], None]) -> None:
    dropped = sorted(before.keys() - after.keys())
    if dropped:
        old, new = before.get("kind"), after.get("kind")
        warn(
            f"model.kind={new} drops the recipe's other [model] keys, which were made for {old}: {', '.join(dropped)}; "
            f"defaults of {new} apply, unless you set these keys as well"
        )


def warn_of_long_warmup(recipe: Recipe, warn: Callable[[str], None]) -> None:
    """Warn if training ends before the learning rate has reached its peak."""
    warmup, steps = recipe.train.warmup_steps, recipe.train.steps
    if warmup > steps:
        warn(
            f"train.warmup_steps is {warmup}, but train.steps is {steps}: the learning rate never reaches its peak; "
            "lower train.warmup_steps, or train longer"
        )


def merged_table(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the table of a recipe file, merged into that of the recipe that its `base` names."""
    path = path.resolve()
    own = {"name": path.stem, **read_toml(path)}
    base = own.pop("base", None)
    if base is None:
        return own
    if not isinstance(base, str) or path in above:
        raise ConfigError(
            f"base of {path.name} is {base!r}; it must name another recipe, and not lead back to this one"
        )
    neighbour = path.parent / base
    table = merged_table(neighbour if neighbour.is_file() else find_recipe(base), (*above, path))
    for key, value in own.items():
        below = table.get(key)
        if not isinstance(value, dict) or not isinstance(below, dict):
            table[key] = value
        elif key == "model" and value.get("kind", below.get("kind")) != below.get("kind"):
            table[key] = value  # another family has other keys
        else:
            table[key] = {**below, **value}
    return table


def apply_override(table: dict[str, Any], override: str) -> None:
    """Set one `dotted.key=value` in a table. The value is parsed as TOML; if that fails it is a string."""
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"{override!r} is not an override; write key=value, as in train.steps=500")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text
    if parts == ["model", "kind"] and isinstance(table.get("model"), dict) and table["model"].get("kind") != value:
        table["model"] = {}  # another family has other keys
    inner: Any = table
    for number, part in enumerate(parts):
        place: str | int = part
        if isinstance(inner, list) and inner and all(isinstance(one, dict) for one in inner):
            place = _entry(inner, part, ".".join(parts[:number]), override)
        elif not isinstance(inner, dict):
            raise ConfigError(f"{key} cannot be set: {parts[number - 1]!r} is a value, not a table")
        if number == len(parts) - 1:
            inner[place] = value
        else:
            inner = inner.setdefault(place, {}) if isinstance(inner, dict) else inner[place]


def _entry(tables: list[Any], part: str, where: str, override: str) -> int:
    """Return the number of a table in a list."""
    if not part.isdecimal() or int(part) >= len(tables):
        raise ConfigError(
            f"{where} is a list of {counted(len(tables), 'table')}, so {override!r} does not name one of them; "
            f"give its number, from 0, as in {where}.0.weight=2"
        )
    return int(part)


def differences(old: Recipe, new: Recipe) -> list[str]:
    """Return what differs between two recipes, as `key: old -> new`."""
    before, after = flat_table(to_table(old)), flat_table(to_table(new))
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return [f"{key}: {before.get(key, 'unset')} -> {after.get(key, 'unset')}" for key in keys]

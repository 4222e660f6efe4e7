"""The pairs that a recipe's `data` table names: files of the user's, or a corpus that we generate."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from regard.config import Bitext
from regard.errors import DataError, did_you_mean
from regard.text import dates, toys
from regard.text.corpus import Pair, read_pairs

GENERATORS: dict[str, Callable[[str], list[tuple[str, str]]]] = {
    "dates": dates.generate,
    **{task: partial(toys.generate, task) for task in toys.TASKS},
}


def load_bitext(bitext: Bitext, *, folders: list[Path]) -> list[Pair]:
    """All pairs. Relative paths are looked for in each of the folders, in order."""
    if bitext.generate is not None:
        name, _, split = bitext.generate.partition("/")
        if name not in GENERATORS:
            raise DataError(f"no built-in corpus is called {name!r}; {did_you_mean(name, GENERATORS)}")
        return [Pair(source, target) for source, target in GENERATORS[name](split)]
    if bitext.pairs is not None:
        return read_pairs(find_file(bitext.pairs, folders))
    assert bitext.source is not None and bitext.target is not None
    return read_pairs(find_file(bitext.source, folders), find_file(bitext.target, folders))


def data_folders(given: Path | None, recipe_folder: Path | None) -> list[Path]:
    """Where data files are looked for: --data, or else $REGARD_DATA; then beside the recipe; then here."""
    named = given or (Path(os.environ["REGARD_DATA"]) if os.environ.get("REGARD_DATA") else None)
    if named is not None and not named.is_dir():
        raise DataError(f"the data folder {str(named)!r} is not a folder; give an existing one with --data")
    return [folder for folder in (named, recipe_folder, Path()) if folder is not None]


def find_file(name: str, folders: list[Path]) -> Path:
    """The first of the folders' files of that name that exists."""
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    where = ", ".join(repr(str(folder)) for folder in folders)
    raise DataError(f"no file {name!r} in {where}; name the folder that holds it with --data or REGARD_DATA")

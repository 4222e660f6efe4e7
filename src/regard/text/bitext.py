"""The pairs that a recipe's `data` table names: files of the user's, or a corpus that we generate."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from regard.config import Bitext, DataConfig, Recipe
from regard.errors import DataError, did_you_mean
from regard.text import dates, toy_labels, toys
from regard.text.corpus import Pair, decode_pairs, stream_pairs

GENERATORS: dict[str, Callable[[str], list[tuple[str, str]]]] = {
    "dates": dates.generate,
    **{task: partial(toys.generate, task) for task in toys.TASKS},
    **toy_labels.GENERATORS,
}


STDIN = "-"  # as data.train.pairs


def load_bitext(bitext: Bitext, *, folders: list[Path]) -> list[Pair]:
    """All pairs. Relative paths are looked for in each of the folders, in order."""
    return list(stream_bitext(bitext, folders=folders))


def stream_bitext(bitext: Bitext, *, folders: list[Path]) -> Iterator[Pair]:
    """The pairs as they are read."""
    if bitext.generate is not None:
        name, _, split = bitext.generate.partition("/")
        if name not in GENERATORS:
            raise DataError(f"no built-in corpus is called {name!r}; {did_you_mean(name, GENERATORS)}")
        return (Pair(source, target) for source, target in GENERATORS[name](split))
    if bitext.pairs == STDIN:
        return decode_pairs(sys.stdin.buffer, "the standard input")  # type: ignore[arg-type]
    if bitext.pairs is None and bitext.source is None:
        raise DataError(f"the store {bitext.store!r} holds ids to train on, not text; name source and target, or pairs")
    return stream_pairs(*text_files(bitext, folders))


def refuse_outside(bitext: Bitext, folders: list[Path], *, recipe_of: str) -> None:
    """Refuse files outside of these folders, which the user named: the recipe of a run may have been made by a stranger."""
    for name in filter(None, (bitext.pairs, bitext.source, bitext.target)):
        if name == STDIN:
            raise DataError(f"the recipe of {recipe_of} reads the standard input; name the files to use instead")
        path = Path(os.path.normpath(name))
        if path.is_absolute():
            inside = any(path.is_relative_to(os.path.abspath(folder)) for folder in folders)
        else:
            inside = ".." not in path.parts
        if not inside:
            raise DataError(
                f"the recipe of {recipe_of} names {name}, which is outside of the folders that you named; "
                f"if that is meant, allow it with --data {Path(name).parent}"
            )


def text_files(bitext: Bitext, folders: list[Path]) -> list[Path]:
    """The files that hold the pairs: one, or two."""
    return [find_file(name, folders) for name in (bitext.pairs, bitext.source, bitext.target) if name is not None]


def pairs_fingerprint(pairs: Iterable[Pair]) -> dict[str, int | str]:
    """Number and hash of the pairs."""
    count, digest = 0, hashlib.sha256()
    for pair in pairs:
        count += 1
        digest.update(f"{pair.source}\t{pair.target}\n".encode())
    return {"pairs": count, "sha256": digest.hexdigest()}


def without_folders(recipe: Recipe) -> Recipe:
    """The recipe to give away: files that were named by where they lie on this machine, by their names alone."""

    def bare(bitext: Bitext | None) -> Bitext | None:
        if bitext is None:
            return None
        names = {name: getattr(bitext, name) for name in ("source", "target", "pairs", "store")}
        bare_names = {name: Path(path).name for name, path in names.items() if path and Path(path).is_absolute()}
        return msgspec.structs.replace(bitext, **bare_names)

    data = recipe.data
    tests = {name: bare(bitext) for name, bitext in data.test.items()}
    data = msgspec.structs.replace(data, train=bare(data.train), valid=bare(data.valid), test=tests)
    return msgspec.structs.replace(recipe, data=data)


def anchor(data: DataConfig, folders: list[Path], *, named: Path | None) -> DataConfig:
    """The same data, found from anywhere: what lies beside the recipe, or here, gets its full path.

    What lies in the data folder that was named keeps its name within it.
    """

    def whole(name: str | None) -> str | None:
        found = next((folder for folder in folders if name is not None and (folder / name).exists()), None)
        return name if name is None or found is None or found == named else str((found / name).resolve())

    def anchored(bitext: Bitext) -> Bitext:
        names = {name: whole(getattr(bitext, name)) for name in ("source", "target", "pairs", "store")}
        return msgspec.structs.replace(bitext, **names)

    return msgspec.structs.replace(
        data,
        train=anchored(data.train),
        valid=None if data.valid is None else anchored(data.valid),
        test={name: anchored(bitext) for name, bitext in data.test.items()},
    )


def named_folder(given: Path | str | None) -> Path | None:
    """The data folder that --data names, or else REGARD_DATA."""
    place = given or os.environ.get("REGARD_DATA")
    if place and not Path(place).is_dir():
        raise DataError(f"the data folder {str(place)!r} is not a folder; give an existing one with --data")
    return Path(place) if place else None


def data_folders(given: Path | str | None, recipe_folder: Path | None) -> list[Path]:
    """Where data files are looked for: the named folder; then beside the recipe; then here."""
    return [folder for folder in (named_folder(given), recipe_folder, Path()) if folder is not None]


def find_file(name: str, folders: list[Path]) -> Path:
    """The first of the folders' files of that name that exists."""
    return _find("file", name, folders, "name the folder that holds it with --data or REGARD_DATA")


def find_store(name: str, folders: list[Path]) -> Path:
    """The first of the folders' stores of that name that exists."""
    return _find("store", name, folders, f"make one with: regard data prepare RECIPE --out {name}")


def _find(what: str, name: str, folders: list[Path], advice: str) -> Path:
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    where = ", ".join(repr(str(folder)) for folder in folders)
    raise DataError(f"no {what} {name!r} in {where}; {advice}")

"""The pairs that the `data` table of a recipe names: text files, or a built-in corpus that is generated."""

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
from regard.text import dates, toys
from regard.text.corpus import Pair, decode_pairs, stream_pairs

GENERATORS: dict[str, Callable[[str], list[tuple[str, str]]]] = {
    "dates": dates.generate,
    **{task: partial(toys.generate, task) for task in toys.TASKS},
    **toys.LABEL_GENERATORS,
}

STDIN = "-"  # the value of data.train.pairs that means standard input


def load_bitext(bitext: Bitext, *, folders: list[Path]) -> list[Pair]:
    """Return all pairs. Relative paths are searched in the folders, in order."""
    return list(stream_bitext(bitext, folders=folders))


def stream_bitext(bitext: Bitext, *, folders: list[Path]) -> Iterator[Pair]:
    """Yield the pairs as they are read."""
    if bitext.generate is not None:
        name, _, split = bitext.generate.partition("/")
        if name not in GENERATORS:
            raise DataError(f"there is no built-in corpus {name!r}; {did_you_mean(name, GENERATORS)}")
        return (Pair(source, target) for source, target in GENERATORS[name](split))
    if bitext.pairs == STDIN:
        return decode_pairs(sys.stdin.buffer, "standard input")  # type: ignore[arg-type]
    if bitext.pairs is None and bitext.source is None:
        raise DataError(f"the store {bitext.store!r} holds ids to train on, not text; name source and target, or pairs")
    return stream_pairs(*text_files(bitext, folders))


def refuse_outside(bitext: Bitext, folders: list[Path], *, recipe_of: str) -> None:
    """Raise DataError for files outside of the folders that the user named, because the recipe is not trusted."""
    for name in filter(None, (bitext.pairs, bitext.source, bitext.target)):
        if name == STDIN:
            raise DataError(f"the recipe of {recipe_of} reads standard input; name the files to use instead")
        path = Path(os.path.normpath(name))
        if path.is_absolute():
            inside = any(path.is_relative_to(os.path.abspath(folder)) for folder in folders)
        else:
            inside = ".." not in path.parts
        if not inside:
            raise DataError(
                f"the recipe of {recipe_of} names {name}, which is outside of the folders that you named; "
                f"to allow it, add --data {Path(name).parent}"
            )


def text_files(bitext: Bitext, folders: list[Path]) -> list[Path]:
    """Return the one or two files that hold the pairs."""
    return [find_file(name, folders) for name in (bitext.pairs, bitext.source, bitext.target) if name is not None]


def pairs_fingerprint(pairs: Iterable[Pair]) -> dict[str, int | str]:
    """Return the number of pairs and their hash."""
    count, digest = 0, hashlib.sha256()
    for pair in pairs:
        count += 1
        digest.update(f"{pair.source}\t{pair.target}\n".encode())
    return {"pairs": count, "sha256": digest.hexdigest()}


def without_folders(recipe: Recipe) -> Recipe:
    """Return the recipe without folders of this machine: absolute paths are replaced by file names."""

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
    """Return the same data with absolute paths, so that it is found from any working directory.

    Files in the data folder `named` by the user keep their relative paths.
    """

    def absolute(name: str | None) -> str | None:
        found = next((folder for folder in folders if name is not None and (folder / name).exists()), None)
        return name if name is None or found is None or found == named else str((found / name).resolve())

    def anchored(bitext: Bitext) -> Bitext:
        names = {name: absolute(getattr(bitext, name)) for name in ("source", "target", "pairs", "store")}
        return msgspec.structs.replace(bitext, **names)

    return msgspec.structs.replace(
        data,
        train=anchored(data.train),
        valid=None if data.valid is None else anchored(data.valid),
        test={name: anchored(bitext) for name, bitext in data.test.items()},
    )


def named_folder(given: Path | str | None) -> Path | None:
    """Return the data folder: --data if it is given, else REGARD_DATA, else None."""
    place = given or os.environ.get("REGARD_DATA")
    if place and not Path(place).is_dir():
        raise DataError(f"the data folder {str(place)!r} does not exist; name an existing folder with --data")
    return Path(place) if place else None


def data_folders(given: Path | str | None, recipe_folder: Path | None) -> list[Path]:
    """Return the folders to search for data files: the named one, that of the recipe, the working directory."""
    folders = [folder for folder in (named_folder(given), recipe_folder, Path()) if folder is not None]
    # Each folder once, in the spelling that comes first.
    return list({folder.resolve(): folder for folder in reversed(folders)}.values())[::-1]


def find_file(name: str, folders: list[Path]) -> Path:
    """Return the path of the file in the first folder that has it."""
    return _find("file", name, folders, "name the folder that holds it with --data or REGARD_DATA")


def find_store(name: str, folders: list[Path]) -> Path:
    """Return the path of the store in the first folder that has it."""
    return _find("store", name, folders, f"make one with: regard data prepare RECIPE --out {name}")


def _find(what: str, name: str, folders: list[Path], advice: str) -> Path:
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    if Path(name).is_absolute():
        raise DataError(f"there is no {what} {name!r}")
    where = ", ".join(repr(str(folder)) for folder in folders)
    raise DataError(f"no {what} {name!r} in {where}; {advice}")

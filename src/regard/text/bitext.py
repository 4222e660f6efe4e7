"""The pairs that the `data` table of a recipe names: text files, or a built-in corpus that is generated."""

from __future__ import annotations

import hashlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from regard.config import Bitext, DataConfig, Recipe
from regard.errors import DataError
from regard.messages import DATA_FOLDER
from regard.text.babi import PARTS, find_babi, stream_babi
from regard.text.compression import ENDINGS
from regard.text.corpus import Pair, decode_pairs, stream_pairs, stream_texts
from regard.text.generators import generate
from regard.text.table_files import Sides
from regard.text.text_report import TextReport

STDIN = "-"  # the value of data.train.pairs that means standard input


def new_report(data: DataConfig | None) -> TextReport:
    """Return a report of reading text, which refuses or skips problems as the table of a recipe says."""
    skip = data is not None and data.on_error == "skip"
    return TextReport(skip=skip, advice="" if data is None else "; data.on_error=skip leaves such text out")


def load_bitext(
    bitext: Bitext, *, folders: list[Path], data: DataConfig | None = None, report: TextReport | None = None
) -> list[Pair]:
    """Return all pairs. Relative paths are searched in the folders, in order.

    `data` is the table that the bitext is from: it may name other folders, and where to get the files. What is left out or
    mended is counted in the report.
    """
    return list(stream_bitext(bitext, folders=folders, data=data, report=report))


def stream_bitext(
    bitext: Bitext, *, folders: list[Path], data: DataConfig | None = None, report: TextReport | None = None
) -> Iterator[Pair]:
    """Yield the pairs as they are read."""
    report = new_report(data) if report is None else report
    if bitext.generate is not None:
        return iter(generate(bitext.generate, bitext.options or {}))
    if bitext.pairs == STDIN:
        file: io.BufferedReader = sys.stdin.buffer  # type: ignore[assignment]
        sides = Sides(bitext.columns, bitext.languages)
        return decode_pairs(file, "standard input", sides, format=bitext.format, report=report)
    if bitext.part is not None:
        return stream_babi(babi_files(bitext, folders, data), bitext.part)
    if not bitext.names("text", "pairs", "source"):
        raise DataError(f"the store {bitext.store!r} holds ids to train on, not text; name source and target, or pairs")
    files = _files_by_key(bitext, folders, data)
    if bitext.text is not None:
        return stream_texts(files["text"], report)
    if bitext.pairs is not None:
        return stream_pairs(
            files["pairs"], columns=bitext.columns, languages=bitext.languages, format=bitext.format, report=report
        )
    return stream_pairs(files["source"], files["target"], files.get("tags"), report=report)


def refuse_outside(bitext: Bitext, folders: list[Path], *, recipe_of: str) -> None:
    """Raise DataError for files outside of the folders that the user named, because the recipe is not trusted."""
    for name in bitext.names(*Bitext.FILES, "babi"):
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


def text_files(bitext: Bitext, folders: list[Path], data: DataConfig | None = None) -> list[Path]:
    """Return all files that hold the examples."""
    return [path for paths in _files_by_key(bitext, folders, data).values() for path in paths]


def _files_by_key(bitext: Bitext, folders: list[Path], data: DataConfig | None) -> dict[str, list[Path]]:
    """Return the files of each key that names some. Raise DataError with the names of all that are missing."""
    names = {key: bitext.names(key) for key in Bitext.FILES if bitext.names(key)}
    found = {name: _look_for(name, folders, data) for key in names for name in names[key]}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise _missing_files(missing, folders, data)
    return {key: [path for name in own if (path := found[name]) is not None] for key, own in names.items()}


def babi_files(bitext: Bitext, folders: list[Path], data: DataConfig | None = None) -> list[Path]:
    """Return the files of the bAbI tasks that are named."""
    assert bitext.part is not None
    places = _babi_places(folders, data)
    found = {name: find_babi(name, bitext.part, places) for name in bitext.names("babi")}
    missing = [name for name, paths in found.items() if not paths]
    if missing:
        where = ", ".join(repr(str(place)) for place in places)
        kind = "test" if bitext.part == "test" else "train"
        origin = f"get them from {data.origin}, and " if data is not None and data.origin else ""
        raise DataError(
            f"no bAbI files of {', '.join(map(repr, missing))}, as in 'qa1_single-supporting-fact_{kind}.txt', in {where}; "
            f"{origin}name the folder that holds them with {DATA_FOLDER}"
        )
    return [path for paths in found.values() for path in paths]


def pairs_fingerprint(pairs: Iterable[Pair]) -> dict[str, int | str]:
    """Return the number of pairs and their hash."""
    count, digest = 0, hashlib.sha256()
    for pair in pairs:
        count += 1
        digest.update(f"{pair.source}\t{pair.target}\n".encode())
    return {"pairs": count, "sha256": digest.hexdigest()}


def without_folders(recipe: Recipe) -> Recipe:
    """Return the recipe without folders of this machine: absolute paths are replaced by file names."""

    def bare_name(name: str) -> str:
        return Path(name).name if Path(name).is_absolute() else name

    data = recipe.data.with_sets(lambda one: _rename(one, bare_name, *Bitext.FILES, "store", "babi"))
    init = recipe.train.init
    if init and Path(init).is_absolute():
        train = msgspec.structs.replace(recipe.train, init=Path(init).name)
        recipe = msgspec.structs.replace(recipe, train=train)
    return msgspec.structs.replace(recipe, data=data)


def anchor(data: DataConfig, folders: list[Path], *, named: Path | None) -> DataConfig:
    """Return the same data with absolute paths, so that it is found from any working directory.

    Files in the data folder `named` by the user keep their relative paths.
    """

    def absolute(find: Callable[[str, list[Path]], Path | None], name: str) -> str:
        found = find(name, folders)
        if found is None or (named is not None and found == find(name, [named])):
            return name
        return str(found.resolve())

    def find_task(name: str, folders: list[Path]) -> Path | None:
        places = _babi_places(folders, data)
        return next((place / name for place in places if any(find_babi(name, part, [place]) for part in PARTS)), None)

    def anchored(bitext: Bitext) -> Bitext:
        bitext = _rename(bitext, partial(absolute, partial(_look_for, data=data)), *Bitext.FILES)
        bitext = _rename(bitext, partial(absolute, _first_with), "store")
        return _rename(bitext, partial(absolute, find_task), "babi")

    return data.with_sets(anchored)


def named_folder(given: Path | str | None) -> Path | None:
    """Return the data folder: --data if it is given, else REGARD_DATA, else None."""
    place = given or os.environ.get("REGARD_DATA")
    if place and not Path(place).is_dir():
        raise DataError(f"the data folder {str(place)!r} does not exist; name an existing folder with {DATA_FOLDER}")
    return Path(place) if place else None


def data_folders(given: Path | str | None, recipe_folder: Path | None) -> list[Path]:
    """Return the folders to search for data files: the named one, that of the recipe, the working directory."""
    folders = [folder for folder in (named_folder(given), recipe_folder, Path()) if folder is not None]
    # Each folder once, in the spelling that comes first.
    return list({folder.resolve(): folder for folder in reversed(folders)}.values())[::-1]


def find_file(name: str, folders: list[Path], data: DataConfig | None = None) -> Path:
    """Return the path of the file in the first folder that has it, plain or compressed."""
    found = _look_for(name, folders, data)
    if found is None:
        raise _missing_files([name], folders, data)
    return found


def find_store(name: str, folders: list[Path]) -> Path:
    """Return the path of the store in the first folder that has it."""
    found = _first_with(name, folders)
    if found is None:
        where = ", ".join(repr(str(folder)) for folder in folders)
        raise DataError(f"no store {name!r} in {where}; make one with: regard data prepare RECIPE --out {name}")
    return found


def _first_with(name: str, folders: list[Path]) -> Path | None:
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def _look_for(name: str, folders: list[Path], data: DataConfig | None = None) -> Path | None:
    """Return the first file that exists: as named, compressed or not, or in the other folders of the recipe."""
    places = (folder / one for one in _other_names(name, data) for folder in folders)
    return _first_with(name, folders) or next((place for place in places if place.is_file()), None)


def _other_names(name: str, data: DataConfig | None) -> list[Path]:
    """Return where else the file may be, relative to a data folder."""
    plain = next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)
    names = list(dict.fromkeys([name, plain, *(f"{plain}{ending}" for ending in ENDINGS)]))
    elsewhere = [Path(folder, Path(one).name) for folder in _other_folders(data) for one in names]
    return [*map(Path, names[1:]), *elsewhere]


def _other_folders(data: DataConfig | None) -> tuple[str, ...]:
    return (data.folders if data is not None else None) or ()


def _babi_places(folders: list[Path], data: DataConfig | None) -> list[Path]:
    return [folder / other for folder in folders for other in ("", *_other_folders(data))]


def _rename(bitext: Bitext, changed: Callable[[str], str], *keys: str) -> Bitext:
    """Return the bitext with other names as values of these keys."""
    given = {key: value for key in keys if (value := getattr(bitext, key))}
    names = {
        key: changed(value) if isinstance(value, str) else tuple(map(changed, value)) for key, value in given.items()
    }
    return msgspec.structs.replace(bitext, **names)


def _missing_files(names: list[str], folders: list[Path], data: DataConfig | None = None) -> DataError:
    """Return the error that says which files are missing, where they were looked for, and where to get them."""
    if all(Path(name).is_absolute() for name in names):
        return DataError(f"there is no file {', '.join(map(repr, names))}")
    below = [*(Path(name).parent for name in names), *map(Path, _other_folders(data))]
    searched: dict[str, Path] = {}
    for place in (folder / one for folder in folders for one in below):
        # The same folder may be named twice, as by --data and as the working directory.
        searched.setdefault(os.path.abspath(place), place)
    where = ", ".join(repr(str(place)) for place in searched.values())
    files = ", ".join(repr(Path(name).name) for name in names)
    them = "it" if len(names) == 1 else "them"
    advice = f"name the folder that holds {them} with {DATA_FOLDER}"
    if data is not None and data.origin:
        example = Path(data.folders[0], Path(names[0]).name) if data.folders else Path(names[0])
        advice = f"get {them} from {data.origin}, and name the folder that has {str(example)!r} with {DATA_FOLDER}"
    return DataError(f"no file {files} in {where}, plain or {ENDINGS[0]}, {ENDINGS[1]} or {ENDINGS[2]}; {advice}")

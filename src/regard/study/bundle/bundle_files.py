"""The files of a bundle: what a study has found, and all that it takes to derive its tables again without training.

BUNDLE/
  MANIFEST                       the SHA-256 of every other file, as `sha256sum -c` reads it
  study.toml                     the study, with its grid spelled out
  recipe/NAME.toml               its recipe, unless it is a shipped one; that of `base` is merged
  study.json                     the result
  table.md, table.tex, table.txt, figure.svg, figure.pdf
  cells/ROW/CANDIDATE/SEED/      cell.json, card.md, outputs/TEST.txt.gz, statistics/TEST.METRIC.tsv.gz

References are not in it: the data are not ours. Their hashes are in the records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from regard.errors import CheckpointError
from regard.recipe_files import shipped_recipes
from regard.storage.folder import Folder
from regard.study.study_file import Study, with_recipes
from regard.toml import from_table, parse_toml

MANIFEST, STUDY, RECIPE = "MANIFEST", "study.toml", "recipe"
MAX_FILES, MAX_LEVELS, MAX_MANIFEST = 100_000, 8, 2**25


def read_manifest(bundle: Path | str) -> dict[str, str]:
    """Return the hash of each file that the manifest of a bundle lists, by path."""
    text = Folder(bundle).load_text(MANIFEST, limit=MAX_MANIFEST)
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        parts = re.fullmatch(r"([0-9a-f]{64})  ([^\\\s][^\\]*)", line)
        if parts is None or parts[2] in found or number > MAX_FILES:
            raise CheckpointError(f"line {number:,} of {MANIFEST} is damaged: {line[:100]!r}")
        found[parts[2]] = parts[1]
    return found


def load_member(bundle: Path | str, path: str) -> bytes:
    """Return the content of a file of a bundle."""
    *below, name = path.split("/")
    return Folder(bundle, *below).load_bytes(name)


def list_files(folder: Folder, above: str = "") -> Iterator[str]:
    """Yield the paths of all files in a bundle."""
    for name in folder.names():
        if folder.has_folder(name) and above.count("/") < MAX_LEVELS:
            yield from list_files(folder / name, f"{above}{name}/")
        else:
            yield f"{above}{name}"


def read_bundled_study(bundle: Path | str) -> Study:
    """Return the study of a bundle. Unlike `read_study`, it builds no recipes, which other versions may read otherwise."""
    study = from_table(Study, parse_toml(load_member(bundle, STUDY), origin=STUDY), where="study")
    if study.baseline not in study.rows or study.tests is None or len(set(study.tests)) < len(study.tests):
        raise CheckpointError(
            f"{STUDY} is damaged: it must name its test sets, each once, and a baseline that is a row"
        )
    return study


def with_recipe_files(bundle: Path | str, study: Study) -> Study:
    """Return the study of a bundle with the paths of its recipes. Raise CheckpointError if one is outside of the bundle."""
    return with_recipes(study, lambda name: _recipe_file(bundle, name))


def _recipe_file(bundle: Path | str, name: str) -> str:
    if name in shipped_recipes():
        return name
    if not re.fullmatch(rf"{RECIPE}/[^/\\]+\.toml", name):
        raise CheckpointError(
            f"{STUDY}: recipe is {name!r}, which is neither a shipped recipe nor {RECIPE}/NAME.toml in the bundle"
        )
    # A bundle has the merged recipe. A `base` could lead to any file.
    if "base" in parse_toml(load_member(bundle, name), origin=name):
        raise CheckpointError(f"{name} has a base, which a recipe in a bundle may not have")
    return str(Path(bundle) / name)

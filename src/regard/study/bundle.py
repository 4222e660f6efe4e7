"""A bundle: what a study has found, and all that it takes to derive every number again without training.

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

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import msgspec

from regard.errors import CheckpointError, ConfigError
from regard.recipe_files import merged_table, shipped_recipes
from regard.run.folder import CARD_PAGE
from regard.storage.directory import LOCK
from regard.storage.folder import Folder
from regard.study.cells import CELLS, OUTPUTS, RECORD, RUN, CellRecord, outputs_name
from regard.study.collecting import STATISTICS, Collected, cell_of, statistics_name
from regard.study.figure import draw_study
from regard.study.results import StudyResult
from regard.study.sentence_statistics import pack, statistics_text
from regard.study.study_file import Study
from regard.study.tables import as_latex, as_markdown, as_text
from regard.toml import dump_toml, from_table, parse_toml, to_table

MANIFEST, STUDY, RECIPE, RESULT = "MANIFEST", "study.toml", "recipe", "study.json"
FIGURE = "figure"
MOST_FILES, MOST_LEVELS, MOST_MANIFEST = 100_000, 8, 2**25
MOST_TRIALS = 100_000  # of approximate randomization, which a check repeats
Tables = dict[str, Callable[[StudyResult], str]]
TABLES: Tables = {"table.md": as_markdown, "table.tex": as_latex, "table.txt": as_text}


def result_json(result: StudyResult) -> bytes:
    """Return the result as JSON for people: indented, in a fixed order."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n"


def result_files(result: StudyResult, warn: Callable[[str], None]) -> dict[str, bytes]:
    """Return the files of a result: JSON, tables, and the figure if matplotlib is installed."""
    files = {RESULT: result_json(result)} | {name: make(result).encode() for name, make in TABLES.items()}
    if find_spec("matplotlib") is None:
        warn("there is no figure, because matplotlib is not installed: pip install 'regard[plots]'")
        return files
    return files | {f"{FIGURE}.{kind}": content for kind, content in draw_study(result, warn=warn).items()}


def save_result(folder: Path | str, files: Mapping[str, bytes]) -> None:
    """Write the files of a result into a folder."""
    place = Folder(folder).make()
    for name, content in files.items():
        place.save_bytes(name, content)


# Writing


def write_bundle(
    bundle: Path | str, collected: Collected, out: Path | str, files: Mapping[str, bytes]
) -> dict[str, str]:
    """Write a bundle of a study whose folder is `out`, and return the hash of each file. `files` are `result_files`.

    A bundle is complete or not there: it is written to a hidden folder next to its place, and renamed at the end.
    """
    place = Path(bundle).absolute()
    if (place.exists() and not place.is_dir()) or Folder(place).names():
        raise ConfigError(f"{bundle} is not an empty folder; name a new one for the bundle")
    contents: dict[str, bytes] = dict(_study_files(collected)) | dict(files)
    for record in collected.records:
        contents |= _cell_files(collected, record, out)
    hashes = {path: hashlib.sha256(content).hexdigest() for path, content in sorted(contents.items())}
    manifest = "".join(f"{digest}  {path}\n" for path, digest in hashes.items())
    unfinished = Folder(place.parent, f".{place.name}.tmp")
    with unfinished.locked(busy=f"another process is writing {bundle}; wait for it, or name another folder"):
        for name in unfinished.names():
            if name != LOCK:  # of a process that was killed
                unfinished.remove(name)
        for path, content in {**contents, MANIFEST: manifest.encode()}.items():
            *below, name = path.split("/")
            Folder(unfinished, *below).make().save_bytes(name, content)
    unfinished.remove(LOCK)
    unfinished.parent.move(unfinished.name, place.name)
    return hashes


def _study_files(collected: Collected) -> Iterator[tuple[str, bytes]]:
    study = msgspec.structs.replace(collected.study, tests=collected.tests)
    if study.recipe not in shipped_recipes():
        file = Path(study.recipe)
        study = msgspec.structs.replace(study, recipe=f"{RECIPE}/{file.name}")
        yield study.recipe, f"{dump_toml(merged_table(file))}\n".encode()
    yield STUDY, f"{dump_toml(to_table(study))}\n".encode()


def _cell_files(collected: Collected, record: CellRecord, out: Path | str) -> dict[str, bytes]:
    cell = cell_of(record)
    source, place = cell.folder(out), f"{CELLS}/{cell.key}"
    found = {f"{place}/{RECORD}": source.load_bytes(RECORD)}
    if (source / RUN).has_file(CARD_PAGE):
        found[f"{place}/{CARD_PAGE}"] = (source / RUN).load_bytes(CARD_PAGE)
    for scored in collected.sets_of(record):
        name = outputs_name(scored.name)
        content = (source / OUTPUTS).load_bytes(name)
        if hashlib.sha256(content).hexdigest() != scored.outputs_sha256:
            raise CheckpointError(f"{source.path / OUTPUTS / name} is damaged: it is not what was scored")
        found[f"{place}/{OUTPUTS}/{name}.gz"] = pack(content.decode())
        counted = collected.statistics.get((record.row, record.seed, scored.name))
        if counted is not None:
            statistics = statistics_name(scored.name, collected.study.metric)
            found[f"{place}/{STATISTICS}/{statistics}"] = pack(statistics_text(counted))
    return found


# Reading


def read_manifest(bundle: Path | str) -> dict[str, str]:
    """Return the hash of each file that the manifest of a bundle lists, by path."""
    text = Folder(bundle).load_text(MANIFEST, limit=MOST_MANIFEST)
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        parts = re.fullmatch(r"([0-9a-f]{64})  ([^\\\s][^\\]*)", line)
        if parts is None or parts[2] in found or number > MOST_FILES:
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
        if folder.has_folder(name) and above.count("/") < MOST_LEVELS:
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


def with_recipe_file(bundle: Path | str, study: Study) -> Study:
    """Return the study of a bundle with the path of its recipe. Raise CheckpointError if that is outside of the bundle."""
    if study.recipe in shipped_recipes():
        return study
    if not re.fullmatch(rf"{RECIPE}/[^/\\]+\.toml", study.recipe):
        raise CheckpointError(
            f"{STUDY}: recipe is {study.recipe!r}, which is neither a shipped recipe nor {RECIPE}/NAME.toml in the bundle"
        )
    # A bundle has the merged recipe. A `base` could lead to any file.
    if "base" in parse_toml(load_member(bundle, study.recipe), origin=study.recipe):
        raise CheckpointError(f"{study.recipe} has a base, which a recipe in a bundle may not have")
    return msgspec.structs.replace(study, recipe=str(Path(bundle) / study.recipe))

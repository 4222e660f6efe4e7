"""Writing the bundle of a study."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from regard.errors import CheckpointError, ConfigError
from regard.recipe_files import merged_table, shipped_recipes
from regard.run.folder import CARD_PAGE
from regard.storage.directory import LOCK
from regard.storage.folder import Folder
from regard.study.bundle.bundle_files import MANIFEST, RECIPE, STUDY
from regard.study.cells import CELLS, OUTPUTS, RECORD, RUN, cell_of, outputs_name
from regard.study.records import CellRecord
from regard.study.result.collected import Collected
from regard.study.result.sentence_statistics import STATISTICS, pack, statistics_name, statistics_text
from regard.study.study_file import study_toml, with_recipes
from regard.toml import dump_toml


def write_bundle(
    bundle: Path | str, collected: Collected, out: Path | str, files: Mapping[str, bytes]
) -> dict[str, str]:
    """Write a bundle of a study whose folder is `out`, and return the hash of each file. `files` are `result_files`.

    A bundle is complete or not there: it is written to a hidden folder next to its place, and renamed at the end.
    """
    refuse_full(bundle)
    place = Path(bundle).absolute()
    contents: dict[str, bytes] = dict(_study_files(collected)) | dict(files)
    for record in collected.records:
        contents |= _cell_files(collected, record, out)
    hashes = content_hashes(contents)
    unfinished = Folder(place.parent, f".{place.name}.tmp")
    with unfinished.locked(busy=f"another process is writing {bundle}; wait for it, or name another folder"):
        for name in unfinished.names():
            if name != LOCK:  # of a process that was killed
                unfinished.remove(name)
        for path, content in {**contents, MANIFEST: manifest_content(hashes)}.items():
            *below, name = path.split("/")
            Folder(unfinished, *below).make().save_bytes(name, content)
    unfinished.remove(LOCK)
    unfinished.parent.move(unfinished.name, place.name)
    return hashes


def content_hashes(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the hash of each file, by path."""
    return {path: hashlib.sha256(content).hexdigest() for path, content in sorted(files.items())}


def manifest_content(hashes: Mapping[str, str]) -> bytes:
    """Return the manifest of files with these hashes."""
    return "".join(f"{digest}  {path}\n" for path, digest in sorted(hashes.items())).encode()


def refuse_full(bundle: Path | str) -> None:
    """Raise ConfigError if the place of a new bundle is not free."""
    place = Path(bundle)
    if (place.exists() and not place.is_dir()) or Folder(place).names():
        raise ConfigError(f"{bundle} is not an empty folder; name a new one for the bundle")


def _study_files(collected: Collected) -> Iterator[tuple[str, bytes]]:
    files: dict[str, str] = {}

    def inside(name: str) -> str:
        """Return the name of a recipe in the bundle."""
        if name in shipped_recipes():
            return name
        path = f"{RECIPE}/{Path(name).name}"
        if files.setdefault(path, name) != name:
            raise ConfigError(f"two recipes of the study are called {Path(name).name}; rename one of the files")
        return path

    study = msgspec.structs.replace(with_recipes(collected.study, inside), tests=collected.tests)
    for path, name in files.items():
        yield path, f"{dump_toml(merged_table(Path(name)))}\n".encode()
    yield STUDY, study_toml(study).encode()


def _cell_files(collected: Collected, record: CellRecord, out: Path | str) -> dict[str, bytes]:
    cell = cell_of(record)
    source, place = cell.folder(out), f"{CELLS}/{cell.key}"
    found = {f"{place}/{RECORD}": source.load_bytes(RECORD)}
    if (source / RUN).has_file(CARD_PAGE):
        found[f"{place}/{CARD_PAGE}"] = (source / RUN).load_bytes(CARD_PAGE)
    for scored in [one for one in collected.sets_of(record) if one.outputs_sha256]:
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

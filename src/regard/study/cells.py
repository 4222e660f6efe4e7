"""The cells of a study: what each one trains, and where it is on disk.

OUT/cells/ROW/CANDIDATE/SEED/
  run/                the run folder
  outputs/TEST.txt    one output per line
  cell.json           the record, written last: the cell has ended
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

import regard
from regard.config import Recipe
from regard.errors import ConfigError
from regard.recipe_files import NOT_THE_RUN
from regard.storage.folder import Folder
from regard.study.records import CellRecord
from regard.study.study_file import VALID, Settings, Study, recipe_of
from regard.text.bitext import without_folders
from regard.toml import flat_table, to_table

CELLS, RUN, OUTPUTS, RECORD = "cells", "run", "outputs", "cell.json"
MAX_SLUG = 60


@dataclass(frozen=True)
class Cell:
    """A row of a study with one candidate and one seed."""

    row: str
    candidate: Settings
    seed: int

    @property
    def parts(self) -> tuple[str, str, str]:
        """The names of its folders below OUT/cells."""
        return slug(self.row), candidate_slug(self.candidate), str(self.seed)

    @property
    def key(self) -> str:
        """The name of the cell."""
        return "/".join(self.parts)

    def folder(self, out: Path | str) -> Folder:
        """Return the folder of the cell in that of its study."""
        return Folder(out, CELLS, *self.parts)


def cell_of(record: CellRecord) -> Cell:
    """Return the cell that a record is of."""
    return Cell(record.row, record.candidate, record.seed)


def slug(name: str) -> str:
    """Return a file name for a text. Texts that are no file names as they are get a hash, so that no two share one."""
    plain = re.sub(r"[^A-Za-z0-9_.=]+", "-", name).strip("-.")[:MAX_SLUG]
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:6]}".lstrip("-")


def candidate_slug(candidate: Settings) -> str:
    """Return a file name for the settings that are chosen; "-" if nothing is."""
    text = ",".join(f"{key.rpartition('.')[2]}={json.dumps(value, sort_keys=True)}" for key, value in candidate.items())
    whole = json.dumps(candidate, sort_keys=True)
    return "-" if not candidate else f"{slug(text)[:MAX_SLUG]}-{hashlib.sha256(whole.encode()).hexdigest()[:6]}"


def outputs_name(test: str) -> str:
    """Return the name of the file with the outputs of a test set."""
    return f"{slug(test)}.txt"


def settings_of(study: Study, cell: Cell) -> Settings:
    """Return all that a cell changes in the recipe, by dotted key."""
    return flat_table({**study.settings, **study.rows[cell.row].settings, **cell.candidate}, lists=False)


def recipe_of_cell(study: Study, cell: Cell) -> Recipe:
    """Return the recipe that a cell trains."""
    return recipe_of(study, cell.row, cell.candidate, cell.seed)


def settings_digest(recipe: Recipe) -> str:
    """Return a hash of all settings that the results of a run depend on."""
    flat = flat_table(to_table(without_folders(recipe)))
    kept = {key: value for key, value in flat.items() if key not in NOT_THE_RUN}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def tests_of(study: Study) -> tuple[str, ...]:
    """Return the names of the test sets that the study reports; all of the recipe unless the study names some."""
    return tuple(recipe_of(study, study.baseline, {}, study.seeds[0]).data.test) if study.tests is None else study.tests


def is_tried(study: Study, cell: Cell | CellRecord) -> bool:
    """Return whether a cell is a candidate that is tried for the choice. It is scored on the dev set and on nothing else."""
    return cell.seed == study.choosing_seed


def is_of_this_version(record: CellRecord) -> bool:
    """Return whether this version of regard has trained a cell. Of a cell that failed before training, this is assumed."""
    return record.machine.get("regard", regard.__version__) == regard.__version__


def has_settings_of(record: CellRecord, study: Study, cell: Cell) -> bool:
    """Return whether a record is of the settings that the cell has now.

    Another version may have other settings and other defaults, so the hash of all settings is compared within a version.
    """
    if not is_of_this_version(record):
        return flat_table(record.settings, lists=False) == settings_of(study, cell)
    return record.settings_sha256 == settings_digest(recipe_of_cell(study, cell))


def read_record(study: Study, cell: Cell, out: Path | str) -> CellRecord | None:
    """Return the record of a cell that has ended, else None. Raise ConfigError if it is of other settings."""
    folder = cell.folder(out)
    if not folder.has_file(RECORD):
        return None
    record = folder.load_struct(RECORD, CellRecord)
    if not has_settings_of(record, study, cell):
        if record.state == "failed":
            return None  # nothing is lost: it is tried again with the settings of now
        raise ConfigError(
            f"{folder} was trained with other settings than the study has now; remove this folder to train it again, "
            "or name another folder with --out"
        )
    if record.state != "finished":
        return record
    reported = recipe_of_cell(study, cell).data.test if study.tests is None else study.tests
    needed = (VALID,) if is_tried(study, cell) else reported
    # What was a candidate with other seeds has no scores on the test sets yet.
    return None if any(record.test(name) is None for name in needed) else record


def forget_other_failure(study: Study, cell: Cell, out: Path | str) -> None:
    """Remove the run and the record of a cell that failed with other settings, so that it begins anew with those of now."""
    folder = cell.folder(out)
    if not folder.has_file(RECORD):
        return
    record = folder.load_struct(RECORD, CellRecord)
    if record.state == "failed" and not has_settings_of(record, study, cell):
        if folder.has_folder(RUN):
            folder.remove(RUN)
        folder.remove(RECORD)  # last, so that a process that is killed here leaves the record

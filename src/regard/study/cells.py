"""The cells of a study: what each one trains, where it is on disk, its record, and the choice among candidates.

OUT/cells/ROW/CANDIDATE/SEED/
  run/                the run folder
  outputs/TEST.txt    one output per line
  cell.json           the record, written last: the cell has ended
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from regard.config import Recipe
from regard.errors import ConfigError
from regard.metrics import METRICS
from regard.recipe_files import NOT_THE_RUN
from regard.storage.folder import Folder
from regard.study.study_file import VALID, Settings, Study, candidates_of, recipe_of
from regard.text.bitext import without_folders
from regard.toml import flat_table, to_table

CELLS, RUN, OUTPUTS, RECORD = "cells", "run", "outputs", "cell.json"
LONGEST_SLUG = 60
State = Literal["finished", "diverged", "failed"]
Scores = dict[str, float | None]  # by metric; None: not finite


class SetScores(msgspec.Struct, frozen=True):
    """The scores of one cell on one test set."""

    name: str
    pairs: int
    sha256: str  # of the pairs, as in the card of a run
    search: str  # how outputs were found; empty for tasks that do not search
    scores: Scores  # all metrics of the recipe; "perplexity" is per label, of the references
    signatures: dict[str, str]  # by metric: what it takes to compute the same score
    outputs_sha256: str  # of the file of outputs; empty for tasks without outputs


class ValidationScores(msgspec.Struct, frozen=True):
    """What a validation during training measured: greedy search, on at most `train.validate_pairs` pairs."""

    step: int
    scores: Scores


class CellRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that has ended. Only `seconds`, `tokens_per_second` and what `machine` says depend on the machine's speed."""

    row: str
    candidate: Settings  # the values of what is chosen; empty if nothing is
    seed: int
    state: State
    problem: str = ""  # why it diverged or failed, in a sentence
    settings: Settings  # all that the cell changes in the recipe
    settings_sha256: str  # of the complete recipe
    parameters: int = 0
    steps: int = 0  # taken
    dev: list[ValidationScores] = []  # by step of training
    tests: list[SetScores] = []  # of the final weights; the dev set is called "valid"
    seconds: float = 0.0  # of training
    tokens_per_second: float | None = None  # labels
    # Cells that shared the GPU, or the machine if it has none; in the file under the name that older records have.
    sharing_device: int = msgspec.field(default=1, name="at_once")
    how: str = ""  # device, precision and number of processes
    machine: dict[str, str] = {}  # device, and versions

    def test(self, name: str) -> SetScores | None:
        """Return the scores on a test set, or None if there are none."""
        return next((one for one in self.tests if one.name == name), None)

    def score(self, test: str, metric: str) -> float | None:
        """Return one score, or None if the cell has none."""
        found = self.test(test)
        return None if found is None else found.scores.get(metric)


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
    plain = re.sub(r"[^A-Za-z0-9_.=]+", "-", name).strip("-.")[:LONGEST_SLUG]
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:6]}".lstrip("-")


def candidate_slug(candidate: Settings) -> str:
    """Return a file name for the settings that are chosen; "-" if nothing is."""
    text = ",".join(f"{key.rpartition('.')[2]}={json.dumps(value, sort_keys=True)}" for key, value in candidate.items())
    whole = json.dumps(candidate, sort_keys=True)
    return "-" if not candidate else f"{slug(text)[:LONGEST_SLUG]}-{hashlib.sha256(whole.encode()).hexdigest()[:6]}"


def outputs_name(test: str) -> str:
    """Return the name of the file with the outputs of a test set."""
    return f"{slug(test)}.txt"


def settings_of(study: Study, cell: Cell) -> Settings:
    """Return all that a cell changes in the recipe."""
    return {**study.settings, **study.rows[cell.row].settings, **cell.candidate}


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


# Records


def read_record(study: Study, cell: Cell, out: Path | str) -> CellRecord | None:
    """Return the record of a cell that has ended, else None. Raise ConfigError if it is of other settings."""
    folder = cell.folder(out)
    if not folder.has_file(RECORD):
        return None
    record, recipe = folder.load_struct(RECORD, CellRecord), recipe_of_cell(study, cell)
    if record.settings_sha256 != settings_digest(recipe):
        if record.state == "failed":
            return None  # nothing is lost: it is tried again with the settings of now
        raise ConfigError(
            f"{folder} was trained with other settings than the study has now; remove this folder to train it again, "
            "or name another folder with --out"
        )
    reported = recipe.data.test if study.tests is None else study.tests
    needed = (VALID,) if is_tried(study, cell) else reported
    # What was a candidate with other seeds has no scores on the test sets yet.
    if record.state == "finished" and any(record.test(name) is None for name in needed):
        return None
    return record


def read_records(study: Study, out: Path | str) -> list[CellRecord]:
    """Return the records of all cells that have ended, in the order of rows, candidates and seeds."""
    records: list[CellRecord] = []
    for name in study.rows:
        own: list[CellRecord] = []
        # The seeds of the chosen candidate are known when the candidates are read.
        for _ in range(2):
            cells = [
                cell for cell in cells_of_row(study, name, [*records, *own]) if not any(_same(cell, one) for one in own)
            ]
            own += [record for cell in cells if (record := read_record(study, cell, out)) is not None]
        records += own
    return records


def _same(cell: Cell, record: CellRecord) -> bool:
    return (cell.row, cell.candidate, cell.seed) == (record.row, record.candidate, record.seed)


def find_record(records: Iterable[CellRecord], cell: Cell) -> CellRecord | None:
    """Return the record of a cell, or None."""
    return next((record for record in records if _same(cell, record)), None)


# Which cells there are


def cells_of_row(study: Study, row: str, records: Sequence[CellRecord]) -> list[Cell]:
    """Return the cells of a row that are known by now.

    Candidates are trained with a seed of their own, and the best of them with those of the study. A row that is like
    another one is trained when that one has its choice.
    """
    chosen = choose_candidate(study, row, records)
    return tried_cells(study, row) + ([] if chosen is None else [Cell(row, chosen, seed) for seed in study.seeds])


def tried_cells(study: Study, row: str) -> list[Cell]:
    """Return the cells that a row's choice is made from; none if there is nothing to choose, or another row decides."""
    return [Cell(row, one, study.choosing_seed) for one in candidates_of(study, row)] if has_choice(study, row) else []


def is_tried(study: Study, cell: Cell | CellRecord) -> bool:
    """Return whether a cell is there for the choice alone. It is scored on the dev set and on nothing else."""
    return cell.seed == study.choosing_seed


def has_choice(study: Study, row: str) -> bool:
    """Return whether a row has several candidates of its own, whose scores on the dev set decide."""
    return len(candidates_of(study, row)) > 1


def cells_of(study: Study, records: Sequence[CellRecord]) -> list[Cell]:
    """Return the cells of all rows that are known by now."""
    return [cell for row in study.rows for cell in cells_of_row(study, row, records)]


def count_cells(study: Study, records: Sequence[CellRecord] = ()) -> int:
    """Return how many cells the study has when all candidates are chosen. A row of which none finishes has no others."""
    count = len(cells_of(study, records))
    for row, table in study.rows.items():
        ended = all(find_record(records, cell) is not None for cell in tried_cells(study, table.like or row))
        if choose_candidate(study, row, records) is None and not ended:
            count += len(study.seeds)
    return count


def choose_candidate(study: Study, row: str, records: Sequence[CellRecord]) -> Settings | None:
    """Return the candidate of a row with the best score on the dev set; None until all have finished or diverged.

    Of equal scores the first in the file is taken.
    """
    row = study.rows[row].like or row
    if not has_choice(study, row):
        return candidates_of(study, row)[0]
    ended = [find_record(records, cell) for cell in tried_cells(study, row)]
    sign = 1 if is_higher_better(study.metric) else -1
    best, chosen = -math.inf, None
    for record in ended:
        if record is None or record.state == "failed":  # a later command tries it again
            return None
        score = record.score(VALID, study.metric)
        if record.state == "finished" and score is not None and sign * score > best:
            best, chosen = sign * score, record.candidate
    return chosen


def is_higher_better(metric: str) -> bool:
    """Return the direction of a metric."""
    return METRICS.get(metric, where="study.metric").higher_is_better


def chosen_records(study: Study, records: Sequence[CellRecord]) -> dict[str, dict[int, CellRecord]]:
    """Return the records of the chosen candidates, by row and seed. A row whose candidates have not all ended has none."""
    found: dict[str, dict[int, CellRecord]] = {}
    for row in study.rows:
        chosen = choose_candidate(study, row, records)
        own: Mapping[int, CellRecord] = {
            record.seed: record for record in records if (record.row, record.candidate) == (row, chosen)
        }
        found[row] = {seed: own[seed] for seed in study.seeds if seed in own}
    return found

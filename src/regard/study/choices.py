"""Which cells a study has. That depends on what was chosen for each row, and so on the records of its candidates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from regard.metrics import METRICS
from regard.study.cells import Cell, cell_of, read_record
from regard.study.records import CellRecord
from regard.study.study_file import VALID, Settings, Study, candidates_of

Records = Mapping[str, CellRecord]  # by the key of their cell


def cells_of_row(study: Study, row: str, records: Records) -> list[Cell]:
    """Return the cells of a row that are known by now.

    Candidates are trained with a seed of their own, and the best of them with those of the study. A row that is like
    another one is trained when that one has its choice.
    """
    chosen = choose_candidate(study, row, records)
    return tried_cells(study, row) + ([] if chosen is None else [Cell(row, chosen, seed) for seed in study.seeds])


def tried_cells(study: Study, row: str) -> list[Cell]:
    """Return the cells that a row's choice is made from; none if there is nothing to choose, or another row decides."""
    return [Cell(row, one, study.choosing_seed) for one in candidates_of(study, row)] if has_choice(study, row) else []


def has_choice(study: Study, row: str) -> bool:
    """Return whether a row has several candidates of its own, whose scores on the dev set decide."""
    return len(candidates_of(study, row)) > 1


def cells_of(study: Study, records: Records) -> list[Cell]:
    """Return the cells of all rows that are known by now."""
    return [cell for row in study.rows for cell in cells_of_row(study, row, records)]


def count_cells(study: Study, records: Records | None = None) -> int:
    """Return how many cells the study has when all candidates are chosen. A row of which none finishes has no others."""
    records = {} if records is None else records
    count = len(cells_of(study, records))
    for row, table in study.rows.items():
        ended = all(cell.key in records for cell in tried_cells(study, table.like or row))
        if choose_candidate(study, row, records) is None and not ended:
            count += len(study.seeds)
    return count


def choose_candidate(study: Study, row: str, records: Records) -> Settings | None:
    """Return the candidate of a row with the best score on the dev set; None until all have finished or diverged.

    Of equal scores the first in the file is taken.
    """
    row = study.rows[row].like or row
    if not has_choice(study, row):
        return candidates_of(study, row)[0]
    ended = [records.get(cell.key) for cell in tried_cells(study, row)]
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


def chosen_records(study: Study, records: Records) -> dict[str, dict[int, CellRecord]]:
    """Return the records of the chosen candidates, by row and seed. A row whose candidates have not all ended has none."""
    found: dict[str, dict[int, CellRecord]] = {}
    for row in study.rows:
        chosen = choose_candidate(study, row, records)
        keys = {} if chosen is None else {seed: Cell(row, chosen, seed).key for seed in study.seeds}
        found[row] = {seed: records[key] for seed, key in keys.items() if key in records}
    return found


# Records


def known_records(study: Study, read: Callable[[Cell], CellRecord | None]) -> dict[str, CellRecord]:
    """Return what `read` returns for each cell that is known, by key, in the order of rows, candidates and seeds.

    A record of a candidate can decide the choice of a row, and with it which other cells there are.
    """
    found: dict[str, CellRecord] = {}
    while True:
        cells = cells_of(study, found)
        new = {cell.key: record for cell in cells if cell.key not in found and (record := read(cell)) is not None}
        if not new:
            return {cell.key: found[cell.key] for cell in cells if cell.key in found}
        found |= new


def by_key(records: Iterable[CellRecord]) -> dict[str, CellRecord]:
    """Return records by the key of their cell."""
    return {cell_of(record).key: record for record in records}


def read_records(study: Study, out: Path | str) -> list[CellRecord]:
    """Return the records of all cells that have ended."""
    return list(known_records(study, lambda cell: read_record(study, cell, out)).values())

"""The records of a bundle, compared with the study, the recipe, their outputs and the statistics of sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import regard
from regard.errors import DataError
from regard.messages import counted
from regard.storage.folder import Folder
from regard.study.bundle.bundle_files import list_files, load_member, with_recipe_files
from regard.study.cells import (
    CELLS,
    OUTPUTS,
    RECORD,
    Cell,
    cell_of,
    is_tried,
    outputs_name,
    recipe_of_cell,
    settings_digest,
    settings_of,
)
from regard.study.choices import known_records
from regard.study.records import CellRecord, SetScores
from regard.study.result.collected import Collected
from regard.study.result.references import read_outputs
from regard.study.result.sentence_statistics import (
    MAX_BYTES_TOGETHER,
    STATISTICS,
    StatisticsKey,
    parse_statistics,
    same_score,
    sentence_metric,
    statistics_name,
    unpack,
)
from regard.study.same_text import differences_of_text
from regard.study.study_file import Study
from regard.toml import flat_table

MAX_PROBLEMS = 100  # that are listed


@dataclass
class BundleCheck:
    """What a check has found. A bundle without problems is correct, except for what the notes say was not derived again."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: int = 0  # that the manifest lists
    derived: set[str] = field(default_factory=set)  # files of numbers that were written anew and compared
    cells: int = 0
    values: int = 0  # of the result that were derived again
    unpacked: int = 0  # bytes of compressed files

    def add(self, problem: str) -> None:
        """Note a problem, unless it is known."""
        if problem not in self.problems and len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)

    def note(self, text: str) -> None:
        """Note what a reader must know of the check, once."""
        if text not in self.notes:
            self.notes.append(text)

    def unpack(self, bundle: Path | str, path: str) -> str:
        """Return the text of a compressed file. Raise DataError if all of them together are larger than they may be."""
        text = unpack(load_member(bundle, path), origin=path, most=MAX_BYTES_TOGETHER - self.unpacked)
        self.unpacked += len(text)
        return text


def read_bundled_records(bundle: Path | str, study: Study, found: BundleCheck) -> list[CellRecord]:
    """Return the records of all cells of the study that are in the bundle."""
    known: set[str] = set()

    def read(cell: Cell) -> CellRecord | None:
        folder, place = Folder(bundle, CELLS, *cell.parts), f"{CELLS}/{cell.key}/{RECORD}"
        if not folder.has_file(RECORD):
            return None
        known.add(cell.key)
        record = folder.load_struct(RECORD, CellRecord)
        if cell_of(record) != cell:
            found.add(f"{place}: row, candidate or seed are not those of its folder")
            return None
        if flat_table(record.settings, lists=False) != settings_of(study, cell):
            found.add(f"{place}: settings are not those of the study")
        names = [one.name for one in record.tests]
        if len(set(names)) < len(names):
            found.add(f"{place}: a test set is there twice")
            return None
        return record

    records = list(known_records(study, read).values())
    for path in list_files(Folder(bundle, CELLS)):
        if path.endswith(f"/{RECORD}") and path.removesuffix(f"/{RECORD}") not in known:
            found.add(f"{CELLS}/{path} is not a cell of the study")
    found.cells = len(records)
    return records


def check_settings(bundle: Path | str, study: Study, records: Sequence[CellRecord], found: BundleCheck) -> None:
    """Compare the hash of all settings of each cell with that of the recipe. Other versions may have other defaults."""
    local = with_recipe_files(bundle, study)
    others = {version for record in records if (version := record.machine.get("regard", "")) != regard.__version__}
    for record in [one for one in records if one.machine.get("regard", "") not in others]:
        if record.settings_sha256 != settings_digest(recipe_of_cell(local, cell_of(record))):
            found.add(
                f"{CELLS}/{cell_of(record).key}/{RECORD}: settings_sha256 is not that of the recipe and the settings"
            )
    if others:
        found.notes.append(
            f"settings_sha256 of cells that version {', '.join(sorted(others)) or 'unknown'} of regard has trained is not "
            f"compared with the recipe, because this is version {regard.__version__}"
        )


def collect_bundle(bundle: Path | str, study: Study, records: list[CellRecord], found: BundleCheck) -> Collected:
    """Return what the result is derived from, after comparing it with itself."""
    assert study.tests is not None
    metric = sentence_metric(study.metric)
    collected = Collected(study, study.tests, records, metric, {})
    statistics: dict[StatisticsKey, Any] = collected.statistics
    for problem in differences_of_text(study, records, study.tests):
        found.add(problem)
    if unknown := sum(record.state == "finished" and not record.corpus for record in records):
        found.notes.append(
            f"the training text of {counted(unknown, 'cell')} is not compared, because an earlier version has not recorded "
            "its hash"
        )
    sets, missing = list(sets_of(collected)), []
    some_have_outputs = any(scored.outputs_sha256 for _, scored, _ in sets)
    for record, scored, place in sets:
        if not scored.outputs_sha256:
            if some_have_outputs:
                found.add(no_outputs(scored, place))
            continue
        read_bundled_outputs(bundle, place, scored, found)
        if metric is None or is_tried(study, record):
            continue
        name = f"{place}/{STATISTICS}/{statistics_name(scored.name, study.metric)}"
        *below, file = name.split("/")
        if not Folder(bundle, *below).has_file(file):
            missing.append(name)
            continue
        text = found.unpack(bundle, name)
        of_sentences = parse_statistics(text, study.metric, sentences=scored.pairs, origin=name)
        score, recorded = metric.score(of_sentences), scored.scores.get(study.metric)
        if not same_score(score, recorded):
            found.add(f"{place}/{RECORD}: {study.metric} on {scored.name} is {recorded}, but {name} gives {score}")
        statistics[record.row, record.seed, scored.name] = of_sentences
    for name in missing if statistics else ():
        found.add(f"{name} is missing, but other outputs have such statistics")
    return collected


def no_outputs(scored: SetScores, place: str) -> str:
    """Return the problem of a test set whose outputs are missing."""
    return f"{place}/{RECORD}: there are no outputs for {scored.name}"


def sets_of(collected: Collected) -> Iterator[tuple[CellRecord, SetScores, str]]:
    """Yield the records, the test sets on which the result uses their scores, and their folders."""
    for record in collected.records:
        for scored in collected.sets_of(record):
            yield record, scored, f"{CELLS}/{cell_of(record).key}"


def read_bundled_outputs(bundle: Path | str, place: str, scored: SetScores, found: BundleCheck) -> list[str]:
    """Return outputs. Raise DataError if they are not those that were scored."""
    name = f"{place}/{OUTPUTS}/{outputs_name(scored.name)}.gz"
    outputs = read_outputs(found.unpack(bundle, name).encode(), scored, Path(place))
    if len(outputs) != scored.pairs:
        raise DataError(
            f"{name} has {counted(len(outputs), 'line')}, but {place}/{RECORD} says {counted(scored.pairs, 'pair')}"
        )
    return outputs

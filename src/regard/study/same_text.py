"""Cells that are compared must have been trained and scored on the same text, as the hashes in their records say."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from regard.errors import DataError
from regard.study.cells import cell_of
from regard.study.records import CellRecord
from regard.study.study_file import VALID, Study, canonical


class OtherText(DataError):
    """Cells that are compared have different text."""


def refuse_other_text(study: Study, records: Sequence[CellRecord], tests: Collection[str]) -> None:
    """Raise OtherText for the first two cells that were trained or scored on different text, though they should not."""
    for problem in differences_of_text(study, records, tests):
        raise OtherText(
            f"{problem}; put the data back, or remove the folders of cells with other data, and run the study again"
        )


def differences_of_text(study: Study, records: Sequence[CellRecord], tests: Collection[str]) -> Iterator[str]:
    """Yield a sentence about each cell that was trained on other text than one with the same settings of data, or scored on
    other pairs: those on `tests`, and of a row on the dev set. Cells that did not finish have no scores to compare."""
    trained: dict[str, CellRecord] = {}
    scored: dict[tuple[str, str], tuple[str, CellRecord]] = {}
    for record in records:
        if record.state != "finished":
            continue
        if record.corpus:
            first = trained.setdefault(_data_of(study, record), record)
            if first.corpus != record.corpus:
                yield f"{_name(record)} and {_name(first)} do not have the same training text and dev set"
        for own in record.tests:
            if own.name not in tests and own.name != VALID:
                continue
            # A dev set that is not reported decides among the candidates of a row.
            row = "" if own.name in tests else record.row
            digest, other = scored.setdefault((row, own.name), (own.sha256, record))
            if digest != own.sha256:
                yield f"{_name(record)} and {_name(other)} have different pairs of {own.name}"


def _data_of(study: Study, record: CellRecord) -> str:
    """Return what decides which text a cell is trained on, whatever its files contain."""
    data: dict[str, Any] = {key: value for key, value in record.settings.items() if key.split(".")[0] == "data"}
    return canonical([study.recipe_name(record.row), data])


def _name(record: CellRecord) -> str:
    return cell_of(record).key


def corpus_hashes(corpus: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the hash of each training corpus and of the dev set of a run. `corpus` is its corpus.json."""
    parts = {name: one for name, one in corpus.items() if name == VALID or name.partition(".")[0] == "train"}
    return {name: str(one["sha256"]) for name, one in parts.items() if "sha256" in one}

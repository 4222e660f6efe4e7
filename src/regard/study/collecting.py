"""What a study has on disk, read for its result: the records of its cells, and the statistics of their sentences."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import CheckpointError, DataError
from regard.metrics import TEXT
from regard.metrics.corpus_metrics import CorpusMetric, Statistics
from regard.metrics.significance import Sampling
from regard.recipe_files import recipe_folder
from regard.study.cells import (
    OUTPUTS,
    Cell,
    CellRecord,
    SetScores,
    chosen_records,
    is_tried,
    outputs_name,
    read_records,
    recipe_of_cell,
    slug,
    tests_of,
)
from regard.study.results import FINISHED, Place, StudyResult, derive
from regard.study.sentence_statistics import pack, parse_statistics, sentence_metric, statistics_text, unpack
from regard.study.study_file import VALID, Study
from regard.text.bitext import data_folders, pairs_fingerprint

STATISTICS = "statistics"  # the folder of a cell that keeps them
NEAR = 1e-9  # relative difference of two scores that are the same but for rounding


@dataclass(frozen=True)
class Collected:
    """All that the result of a study is derived from."""

    study: Study
    tests: tuple[str, ...]
    records: list[CellRecord]
    metric: CorpusMetric | None  # that scores sums of the statistics; None: the metric has none
    statistics: dict[Place, Statistics]

    def sets_of(self, record: CellRecord) -> list[SetScores]:
        """Return the scores of a record that decide something: those of a candidate on the dev set, of others on `tests`."""
        names = (VALID,) if is_tried(self.study, record) else self.tests
        return [one for one in record.tests if one.name in names and one.outputs_sha256]

    def result(self, sampling: Sampling | None = None) -> StudyResult:
        """Derive the result."""
        return derive(
            self.study, self.records, self.statistics, tests=self.tests, metric=self.metric, sampling=sampling
        )


def statistics_name(test: str, metric: str) -> str:
    """Return the name of the file with the statistics of a test set."""
    return f"{slug(test)}.{metric}.tsv.gz"


def cell_of(record: CellRecord) -> Cell:
    """Return the cell that a record is of."""
    return Cell(record.row, record.candidate, record.seed)


def collect(
    study: Study,
    out: Path | str,
    *,
    data: Path | str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Collected:
    """Read the records of a study, and count the sentences of outputs that are not counted yet.

    Counting needs the test sets, whose folder is `data`; what is counted is kept in the folder of the cell.
    """
    records, tests = read_records(study, out), tests_of(study)
    refuse_other_sets(records)
    metric = sentence_metric(study.metric)
    found: dict[Place, Statistics] = {}
    references: _References | None = None
    for row, own in chosen_records(study, records).items() if metric is not None else ():
        assert metric is not None
        for seed, record in own.items():
            for scored in [one for one in record.tests if one.name in tests and one.outputs_sha256]:
                counted = _kept(study, record, scored, out, metric)
                if counted is None:
                    if references is None:
                        tell("counting the sentences of outputs ...")
                        references = _References(study, record, data_folders(data, recipe_folder(study.recipe)))
                    counted = references.count(record, scored, out)
                if counted is not None and record.state == FINISHED:
                    found[row, seed, scored.name] = counted
    return Collected(study, tests, records, metric, found)


def refuse_other_sets(records: Sequence[CellRecord]) -> None:
    """Raise DataError if cells were scored on different pairs under one name."""
    seen: dict[str, tuple[str, str]] = {}
    for record in records:
        for scored in record.tests:
            first = seen.setdefault(scored.name, (scored.sha256, cell_of(record).key))
            if first[0] != scored.sha256:
                raise DataError(
                    f"{cell_of(record).key} was scored on other pairs of {scored.name} than {first[1]}; "
                    "remove the folder of the one with the wrong data, and run the study again"
                )


def _kept(
    study: Study, record: CellRecord, scored: SetScores, out: Path | str, metric: CorpusMetric
) -> Statistics | None:
    """Return statistics that were counted before, if they give the score of the record."""
    folder, name = cell_of(record).folder(out) / STATISTICS, statistics_name(scored.name, study.metric)
    if not folder.has_file(name):
        return None
    try:
        text = unpack(folder.load_bytes(name), origin=folder.path / name)
        counted = parse_statistics(text, study.metric, sentences=scored.pairs, origin=folder.path / name)
    except (DataError, CheckpointError):
        return None
    return counted if same_score(metric.score(counted), scored.scores.get(study.metric)) else None


def same_score(one: float | None, other: float | None) -> bool:
    """Return whether two scores are the same but for rounding."""
    if one is None or other is None:
        return one is other
    return abs(one - other) <= NEAR * max(1.0, abs(one), abs(other))


class _References:
    """The test sets of a study, to count the sentences of outputs with."""

    def __init__(self, study: Study, record: CellRecord, folders: list[Path]) -> None:
        self.study = study
        self.task, self.sets = test_sets(study, record, folders)

    def count(self, record: CellRecord, scored: SetScores, out: Path | str) -> Statistics | None:
        """Return the statistics of an output, and keep them; None if the task does not compare text."""
        if self.task.compares != TEXT:
            return None
        cell = cell_of(record).folder(out)
        outputs = read_outputs((cell / OUTPUTS).load_bytes(outputs_name(scored.name)), scored, cell.path)
        counted = count_sentences(self.study, scored, outputs, self.sets, self.task)
        name = statistics_name(scored.name, self.study.metric)
        (cell / STATISTICS).make().save_bytes(name, pack(statistics_text(counted)))
        return counted


def test_sets(study: Study, record: CellRecord, folders: list[Path]) -> tuple[Any, dict[str, Any]]:
    """Return the task of a study, and the pairs of its dev set and its test sets, whose files are in these folders."""
    # Torch takes seconds to import, and a study whose sentences are counted needs none of it.
    from regard.study.score_cell import read_sets
    from regard.tasks import task_of

    task = task_of(recipe_of_cell(study, cell_of(record)))
    return task, read_sets(task, folders)


def read_outputs(content: bytes, scored: SetScores, origin: Path) -> list[str]:
    """Return the outputs in a file. Raise DataError unless it is the one that was scored."""
    if hashlib.sha256(content).hexdigest() != scored.outputs_sha256:
        raise DataError(f"the outputs for {scored.name} in {origin} are not those that were scored")
    # Not splitlines: it would split at other characters that an output may have.
    return content.decode().split("\n")[:-1]


def count_sentences(
    study: Study, scored: SetScores, outputs: Sequence[str], sets: Mapping[str, Any], task: Any
) -> Statistics:
    """Return the statistics of outputs. Raise DataError if the test set is another one than was scored."""
    pairs = sets.get(scored.name)
    if pairs is None or pairs_fingerprint(pairs)["sha256"] != scored.sha256:
        raise DataError(f"the test set {scored.name} is not the one that was scored; name its folder with --data")
    metric = sentence_metric(study.metric, [[pair.target for pair in pairs]], task.recipe.evaluate)
    assert metric is not None
    counted = metric.statistics(outputs)
    if not same_score(metric.score(counted), scored.scores.get(study.metric)):
        raise DataError(
            f"{study.metric} on {scored.name} is recorded as {scored.scores.get(study.metric)}, but the outputs give "
            f"{metric.score(counted)}"
        )
    return counted

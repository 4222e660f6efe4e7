"""What a study has on disk, read for its result: the records of its cells, and the statistics of their sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from regard.errors import CheckpointError, DataError
from regard.metrics.corpus_metrics import CorpusMetric, Statistics
from regard.metrics.significance import Sampling
from regard.recipe_files import recipe_folder
from regard.study.cells import cell_of, is_tried, tests_of
from regard.study.choices import by_key, chosen_records, read_records
from regard.study.records import CellRecord, SetScores
from regard.study.result.deriving import derive
from regard.study.result.references import References
from regard.study.result.sentence_statistics import (
    STATISTICS,
    StatisticsKey,
    parse_statistics,
    same_score,
    sentence_metric,
    statistics_name,
    unpack,
)
from regard.study.result.study_result import StudyResult
from regard.study.same_text import refuse_other_text
from regard.study.study_file import VALID, Study
from regard.text.bitext import data_folders


@dataclass(frozen=True)
class Collected:
    """All that the result of a study is derived from."""

    study: Study
    tests: tuple[str, ...]
    records: list[CellRecord]
    metric: CorpusMetric | None  # that scores sums of the statistics; None: the metric has none
    statistics: dict[StatisticsKey, Statistics]

    def sets_of(self, record: CellRecord) -> list[SetScores]:
        """Return the scores of a record that the result uses: of a candidate on the dev set, of another cell on `tests`."""
        names = (VALID,) if is_tried(self.study, record) else self.tests
        return [one for one in record.tests if one.name in names]

    def result(self, sampling: Sampling | None = None) -> StudyResult:
        """Derive the result."""
        return derive(
            self.study, self.records, self.statistics, tests=self.tests, metric=self.metric, sampling=sampling
        )


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
    refuse_other_text(study, records, tests)
    metric = sentence_metric(study.metric)
    found: dict[StatisticsKey, Statistics] = {}
    references: References | None = None
    for row, own in chosen_records(study, by_key(records)).items() if metric is not None else ():
        assert metric is not None
        for seed, record in own.items():
            for scored in [one for one in record.tests if one.name in tests and one.outputs_sha256]:
                counted = _kept(study, record, scored, out, metric)
                if counted is None:
                    if references is None:
                        tell("counting the sentences of outputs ...")
                        folders = data_folders(data, recipe_folder(study.recipe_name(row)))
                        references = References(study, record, folders)
                    counted = references.count(record, scored, out)
                if counted is not None and record.state == "finished":
                    found[row, seed, scored.name] = counted
    return Collected(study, tests, records, metric, found)


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

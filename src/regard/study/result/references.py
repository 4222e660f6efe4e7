"""The test sets of a study: reading them, and counting the sentences of outputs against their references."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.metrics import TEXT
from regard.metrics.corpus_metrics import Statistics
from regard.study.cells import OUTPUTS, cell_of, outputs_name
from regard.study.records import CellRecord, SetScores
from regard.study.result.sentence_statistics import (
    STATISTICS,
    pack,
    same_score,
    sentence_metric,
    statistics_name,
    statistics_text,
)
from regard.study.study_file import Study
from regard.text.bitext import pairs_fingerprint
from regard.text.pair import Pair


class References:
    """The test sets of a study, to count the sentences of outputs with."""

    def __init__(self, study: Study, record: CellRecord, folders: list[Path]) -> None:
        # Torch takes seconds to import, and a study whose sentences are counted needs none of it.
        from regard.study.test_sets import task_and_sets

        self.study = study
        self.task, self.sets = task_and_sets(study, record, folders)

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


def read_outputs(content: bytes, scored: SetScores, origin: Path) -> list[str]:
    """Return the outputs in a file. Raise DataError unless it is the one that was scored."""
    if hashlib.sha256(content).hexdigest() != scored.outputs_sha256:
        raise DataError(f"the outputs for {scored.name} in {origin} are not those that were scored")
    # Not splitlines: it would split at other characters that an output may have.
    return content.decode().split("\n")[:-1]


def pairs_of(scored: SetScores, sets: Mapping[str, list[Pair]]) -> list[Pair]:
    """Return the pairs that were scored. Raise DataError if the test set is another one."""
    pairs = sets.get(scored.name)
    if pairs is None or pairs_fingerprint(pairs)["sha256"] != scored.sha256:
        raise DataError(f"the test set {scored.name} is not the one that was scored; name its folder with --data")
    return pairs


def count_sentences(
    study: Study, scored: SetScores, outputs: Sequence[str], sets: Mapping[str, Any], task: Any
) -> Statistics:
    """Return the statistics of outputs. Raise DataError if the test set is another one than was scored."""
    pairs = pairs_of(scored, sets)
    metric = sentence_metric(study.metric, [[pair.target for pair in pairs]], task.recipe.evaluate)
    assert metric is not None
    counted = metric.statistics(outputs)
    if not same_score(metric.score(counted), scored.scores.get(study.metric)):
        raise DataError(
            f"{study.metric} on {scored.name} is recorded as {scored.scores.get(study.metric)}, but the outputs give "
            f"{metric.score(counted)}"
        )
    return counted

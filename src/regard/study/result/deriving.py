"""How the result of a study is derived: from records and sentence statistics alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from regard.comparing.outputs import length_ranges
from regard.errors import ConfigError
from regard.metrics.corpus_metrics import CorpusMetric, Statistics
from regard.metrics.significance import Sampling
from regard.study.choices import (
    Records,
    by_key,
    cells_of_row,
    choose_candidate,
    chosen_records,
    has_choice,
    is_higher_better,
    tried_cells,
)
from regard.study.records import CellRecord
from regard.study.result.sentence_statistics import StatisticsKey
from regard.study.result.significance import SeedTest, holm, mean_change, seed_tests, sentence_p, verdict
from regard.study.result.study_result import (
    Cost,
    LengthScores,
    Published,
    RowComparison,
    RowResult,
    SetResult,
    Spread,
    StudyResult,
    TriedCandidate,
)
from regard.study.study_file import VALID, Study, describe_settings

DIGITS = 6  # that are kept of a number
MAX_TRIALS = 100_000  # of approximate randomization, which whoever checks a bundle repeats


def check_sampling(sampling: Sampling) -> None:
    """Raise ConfigError for numbers that are not possible in a study."""
    sampling.check()
    if sampling.trials > MAX_TRIALS:
        raise ConfigError(f"trials is {sampling.trials:,}; at most {MAX_TRIALS:,} are possible in a study")


def derive(
    study: Study,
    records: Sequence[CellRecord],
    statistics: Mapping[StatisticsKey, Statistics],
    *,
    tests: Sequence[str],
    metric: CorpusMetric | None,
    sampling: Sampling | None = None,
) -> StudyResult:
    """Return the result of a study, complete or not.

    `statistics` are those of the sentences of every output, by the metric of the study; `metric` scores their sums. Without
    either, differences are tested over seeds alone.
    """
    sampling = Sampling() if sampling is None else sampling
    check_sampling(sampling)
    known = by_key(records)
    chosen = {row: _finished(own) for row, own in chosen_records(study, known).items()}
    compared = {test: _compare(study, chosen, statistics, test, metric, sampling) for test in tests}
    rows = []
    for name, row in study.rows.items():
        own = list(chosen[name].values())
        rows.append(
            RowResult(
                name=name,
                group=row.group,
                settings={**({"recipe": Path(row.recipe).name} if row.recipe else {}), **row.settings},
                candidates=_candidates(study, name, known),
                chosen=dict(own[0].candidate) if own else {},
                parameters=own[0].parameters if own else None,
                seconds=_mean([one.seconds for one in own]),
                tokens_per_second=_mean([one.tokens_per_second for one in own if one.tokens_per_second is not None]),
                sets=[_set_result(study, name, chosen, test, compared[test].get(name)) for test in tests],
                problems=_problems(study, name, known),
            )
        )
    finished = [one for own in chosen.values() for one in own.values()]
    found = StudyResult(
        question=study.question,
        recipe=Path(study.recipe).name,
        metric=study.metric,
        higher_is_better=is_higher_better(study.metric),
        baseline=study.baseline,
        seeds=list(study.seeds),
        choosing_seed=study.choosing_seed if any(has_choice(study, row) for row in study.rows) else None,
        tests=list(tests),
        settings=dict(study.settings),
        signatures=dict(finished[0].tests[0].signatures) if finished and finished[0].tests else {},
        trials=sampling.trials,
        trials_seed=sampling.seed,
        rows=rows,
        by_length={test: _by_length(chosen, statistics, test, metric) for test in tests},
        cost=_cost(records),
    )
    return msgspec.convert(rounded(msgspec.to_builtins(found)), StudyResult)


def _finished(records: Mapping[int, CellRecord]) -> dict[int, CellRecord]:
    return {seed: record for seed, record in records.items() if record.state == "finished"}


def _compare(
    study: Study,
    chosen: Mapping[str, Mapping[int, CellRecord]],
    statistics: Mapping[StatisticsKey, Statistics],
    test: str,
    metric: CorpusMetric | None,
    sampling: Sampling,
) -> dict[str, RowComparison]:
    """Return the comparison of every row with the baseline that has a seed in common with it."""
    scores = {
        row: {seed: score for seed, one in own.items() if (score := one.score(test, study.metric)) is not None}
        for row, own in chosen.items()
    }
    over_seeds = seed_tests(scores, study.baseline)
    counted = {
        row: {seed: statistics[row, seed, test] for seed in scores[row] if (row, seed, test) in statistics}
        for row in scores
    }
    others = [row for row in scores if row != study.baseline and set(scores[row]) & set(scores[study.baseline])]
    over_sentences: dict[str, float] = {}
    for row in others:
        p = None if metric is None else sentence_p(metric, counted[study.baseline], counted[row], sampling)
        if p is not None:
            over_sentences[row] = p
    corrected = holm({row: one.p for row, one in over_seeds.items()}), holm(over_sentences)
    higher = is_higher_better(study.metric)
    found = {}
    for row in others:
        one: SeedTest | None = over_seeds.get(row)
        change = mean_change(scores[row], scores[study.baseline])
        p_values = (corrected[0].get(row), corrected[1].get(row))
        found[row] = RowComparison(
            change=change,
            low=None if one is None else one.low,
            high=None if one is None else one.high,
            p_seeds=None if one is None else one.p,
            p_seeds_corrected=p_values[0],
            freedom=None if one is None else one.freedom,
            pooled=None if one is None else one.pooled,
            p_sentences=over_sentences.get(row),
            p_sentences_corrected=p_values[1],
            verdict=verdict(change, p_values, higher_is_better=higher),
        )
    return found


def _set_result(
    study: Study, name: str, chosen: Mapping[str, Mapping[int, CellRecord]], test: str, compared: RowComparison | None
) -> SetResult:
    by_seed = {
        str(seed): {metric: value for metric, value in found.scores.items() if value is not None}
        for seed, record in chosen[name].items()
        if (found := record.test(test)) is not None
    }
    return SetResult(test, _spreads(chosen[name], test), by_seed, compared, _published(study, name, compared))


def _spreads(records: Mapping[int, CellRecord], test: str) -> dict[str, Spread]:
    """Return the mean of every metric over seeds."""
    found = [scored.scores for record in records.values() if (scored := record.test(test)) is not None]
    values = {metric: [own[metric] for own in found if own.get(metric) is not None] for own in found for metric in own}
    return {metric: spread([one for one in own if one is not None]) for metric, own in values.items() if own}


def spread(values: Sequence[float]) -> Spread:
    """Return the mean and the standard deviation (of a sample: divided by one less than the number)."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Spread(float(np.mean(values)), deviation, len(values))


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _by_length(
    chosen: Mapping[str, Mapping[int, CellRecord]],
    statistics: Mapping[StatisticsKey, Statistics],
    test: str,
    metric: CorpusMetric | None,
) -> list[LengthScores]:
    """Return the scores of sentences by the length of their reference, if the statistics have one length for each."""
    counted = {
        row: [statistics[row, seed, test] for seed in own if (row, seed, test) in statistics]
        for row, own in chosen.items()
    }
    every = [one for own in counted.values() for one in own]
    if metric is None or metric.length is None or not every:
        return []
    lengths = every[0][:, metric.length]
    # Of several references, each output is compared with the one of the nearest length.
    if any((one[:, metric.length] != lengths).any() for one in every):
        return []
    found = []
    for shortest, longest in length_ranges(lengths.astype(int).tolist()):
        part = (lengths >= shortest) & (lengths <= longest)
        scores = {row: float(np.mean([metric.score(one[part]) for one in own])) for row, own in counted.items() if own}
        found.append(LengthScores(shortest, longest, int(part.sum()), scores))
    return found


def _candidates(study: Study, row: str, records: Records) -> list[TriedCandidate]:
    found, chosen = [], choose_candidate(study, row, records)
    for cell in tried_cells(study, row):
        record = records.get(cell.key)
        state = "missing" if record is None else record.state
        score = None if record is None else record.score(VALID, study.metric)
        found.append(TriedCandidate(cell.candidate, state, score, cell.candidate == chosen))
    return found


def _published(study: Study, name: str, compared: RowComparison | None) -> dict[str, Published]:
    """Return the published scores of a row, and whether our change on a test set has their direction."""
    base, found = study.rows[study.baseline].published, {}
    for metric, score in study.rows[name].published.items():
        change = score - base[metric] if metric in base and name != study.baseline else None
        same = None
        if change and metric == study.metric and compared is not None and compared.verdict in ("better", "worse"):
            same = bool(np.sign(change) == np.sign(compared.change))
        found[metric] = Published(score, change, same)
    return found


def _problems(study: Study, row: str, records: Records) -> list[str]:
    """Return a few words about the cells of a row that have not finished."""
    found: list[str] = []
    missing: dict[str, list[str]] = {}  # seeds, by candidate
    for cell in cells_of_row(study, row, records):
        record = records.get(cell.key)
        candidate = f" with {describe_settings(cell.candidate)}" if cell.candidate else ""
        if record is None:
            missing.setdefault(candidate, []).append(str(cell.seed))
        elif record.state != "finished":
            problem = f": {record.problem}" if record.problem else ""
            found.append(f"seed {cell.seed}{candidate} {record.state}{problem}")
    for candidate, seeds in missing.items():
        name, verb = ("seed", "is") if len(seeds) == 1 else ("seeds", "are")
        found.append(f"{name} {', '.join(seeds)}{candidate} {verb} missing")
    if choose_candidate(study, row, records) is None:
        tried = _candidates(study, study.rows[row].like or row, records)
        failed = [one.settings for one in tried if one.state == "failed"]
        if any(one.state == "missing" for one in tried) or failed:
            reason = f", because {describe_settings(failed[0])} failed" if failed else ""
            found.append(f"no candidate is chosen yet{reason}")
        else:
            found.append("no candidate can be chosen, because none has finished with a score on the dev set")
    return found


def _cost(records: Sequence[CellRecord]) -> Cost:
    return Cost(
        cells=len(records),
        hours=sum(record.seconds for record in records) / 3600,
        device_hours=sum(record.seconds / record.sharing_device for record in records) / 3600,
        devices=sorted({record.machine["device"] for record in records if "device" in record.machine}),
    )


def rounded(value: Any) -> Any:
    """Return plain values with so few digits of each number that any machine derives the same."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value

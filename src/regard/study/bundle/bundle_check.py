"""Derive the result of a bundle again (`regard study check`), and name each value that differs.

Three layers, so that a changed number is noticed even if other files were changed with it: every file must have the hash
that the manifest lists; records must agree with the study, with their outputs and with the statistics of their sentences;
and the result and its tables must be those that are derived from them. With the data, sentences are counted again from
outputs and references.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from regard.config import DataConfig
from regard.errors import CheckpointError, DataError, RegardError
from regard.metrics import METRICS, PROBABILITIES, TEXT, score_all
from regard.metrics.significance import Sampling
from regard.storage.folder import Folder, parse_json
from regard.study.bundle.bundle_files import (
    MANIFEST,
    list_files,
    load_member,
    read_bundled_study,
    read_manifest,
    with_recipe_files,
)
from regard.study.bundle.bundle_records import (
    BundleCheck,
    check_settings,
    collect_bundle,
    no_outputs,
    read_bundled_outputs,
    read_bundled_records,
    sets_of,
)
from regard.study.cells import CELLS, RECORD, cell_of, is_tried, recipe_of_cell
from regard.study.result.collected import Collected
from regard.study.result.deriving import check_sampling
from regard.study.result.references import count_sentences, pairs_of
from regard.study.result.result_files import RESULT, TABLES
from regard.study.result.sentence_statistics import STATISTICS, same_score, statistics_name, statistics_text
from regard.study.result.study_result import StudyResult
from regard.text.bitext import data_folders, refuse_outside
from regard.text.pair import Pair


def check_bundle(
    bundle: Path | str, *, data: Path | str | None = None, tell: Callable[[str], None] = lambda text: None
) -> BundleCheck:
    """Check a bundle. With `data`, the folder of the test sets, scores are computed again from outputs and references."""
    found = BundleCheck()
    if not Folder(bundle).has_file(MANIFEST) and Folder(bundle).has_folder(CELLS):
        found.add(
            f"{bundle} has no {MANIFEST}: it is the folder of a study, not a bundle; write one with: "
            f"regard study show FILE --out {bundle} --bundle NEW_FOLDER"
        )
        return found
    collected = None
    _check_hashes(bundle, found)
    try:
        study = read_bundled_study(bundle)
        records = read_bundled_records(bundle, study, found)
        check_settings(bundle, study, records, found)
        collected = collect_bundle(bundle, study, records, found)
        if data is not None:
            tell("scoring all outputs again ...")
            _check_scores(bundle, collected, data, found)
        tell("deriving the result again ...")
        _check_result(bundle, collected, found)
    except RegardError as error:
        found.add(str(error))
    # A study that `read_study` would refuse, or counts that no text has.
    except (LookupError, ValueError, TypeError, ArithmeticError) as error:
        found.add(f"{bundle} is damaged: {type(error).__name__}: {error}")
    if data is None and collected is not None:
        found.notes += _unverified(collected)
    found.notes.append("perplexity, parameters, times and speeds are as recorded: only training could give them again")
    found.notes.append(
        "figures, cards and the recipe have the hashes that the manifest lists, and are not derived again"
    )
    return found


def _unverified(collected: Collected) -> Iterator[str]:
    """Yield notes on the scores that are not derived again without the data."""
    metric, again = collected.study.metric, "with --data, they are computed again from the outputs and the references"
    if not any(scored.outputs_sha256 for _, scored, _ in sets_of(collected)):
        yield "all scores are as recorded, because there are no outputs to compute them from"
        return
    if not collected.statistics:
        yield f"no score is derived again, because there are no statistics of sentences; {again}"
        return
    yield f"{metric} of cells with the seeds of the study is derived from the statistics of each sentence"
    candidates = any(is_tried(collected.study, record) for record in collected.records)
    others = ", and those of candidates on the dev set, by which they are chosen," if candidates else ""
    yield f"scores of other metrics{others} are as recorded; {again}"


def _check_hashes(bundle: Path | str, found: BundleCheck) -> None:
    try:
        hashes = read_manifest(bundle)
    except CheckpointError as error:
        found.add(str(error))
        return
    found.files = len(hashes)
    for path, digest in hashes.items():
        try:
            if hashlib.sha256(load_member(bundle, path)).hexdigest() != digest:
                found.add(f"{path} is not the file that {MANIFEST} lists: its SHA-256 differs")
        except CheckpointError as error:
            found.add(str(error))
    for path in list_files(Folder(bundle)):
        if path not in hashes and path != MANIFEST:
            found.add(f"{path} is not listed in {MANIFEST}")


# Scores from outputs and references


def _check_scores(bundle: Path | str, collected: Collected, data: Path | str, found: BundleCheck) -> None:
    """Compute scores and statistics of all outputs again."""
    from regard.study.test_sets import read_sets  # imports torch
    from regard.tasks import task_of

    study, folders = with_recipe_files(bundle, collected.study), data_folders(data, None)
    found.unpacked = 0  # the texts before are not kept
    sets: dict[str, dict[str, list[Pair]]] = {}  # by the data table, which most rows share
    for record, scored, place in sets_of(collected):
        task = task_of(recipe_of_cell(study, cell_of(record)))
        if task.compares == PROBABILITIES:
            found.note(
                f"scores on {scored.name} are as recorded, because only the model could give its probabilities again"
            )
            continue
        if not scored.outputs_sha256:
            found.add(no_outputs(scored, place))
            continue
        outputs = read_bundled_outputs(bundle, place, scored, found)
        table = task.recipe.data
        if repr(table) not in sets:
            _refuse_references_of(bundle, table, folders)
            # Not the folder of the recipe, which comes with the bundle: references in it would prove nothing.
            sets[repr(table)] = read_sets(task, folders)
        pairs = pairs_of(scored, sets[repr(table)])
        key = (record.row, record.seed, scored.name)
        if key in collected.statistics and task.compares == TEXT:
            again = statistics_text(count_sentences(study, scored, outputs, sets[repr(table)], task)).splitlines()
            kept = statistics_text(collected.statistics[key]).splitlines()
            line = _first_difference(again, kept)
            name = f"{place}/{STATISTICS}/{statistics_name(scored.name, study.metric)}"
            found.derived.add(name)
            if line is not None:
                found.add(f"line {line:,} of {name} is not what the output and the reference give")
        references, inputs = [pair.target for pair in pairs], [pair.source for pair in pairs]
        for score in score_all(outputs, references, inputs, task.recipe.evaluate, compares=task.compares):
            recorded = scored.scores.get(score.name)
            if not same_score(score.value, recorded):
                found.add(
                    f"{place}/{RECORD}: {score.name} on {scored.name} is {recorded}, but the outputs give {score.value}"
                )


def _refuse_references_of(bundle: Path | str, table: DataConfig, folders: list[Path]) -> None:
    """Raise DataError if a recipe, which comes with the bundle, names files elsewhere, or references in the bundle."""
    from regard.study.checks import find_files  # imports torch

    scored = (*table.dev_sets, *table.test.values())
    for text in (*table.corpora, *scored):
        refuse_outside(text, folders, recipe_of=str(bundle))
    read = (*table.corpora, *scored) if any(one.hold_out for one in table.dev_sets) else scored
    for path in find_files(read, table, folders):
        if path.resolve().is_relative_to(Path(bundle).resolve()):
            raise DataError(f"{path} is in the bundle, where references prove nothing; name the folder of your own")


def _first_difference(one: Sequence[str], other: Sequence[str]) -> int | None:
    pairs = enumerate(zip_longest(one, other), start=1)
    return next((number for number, (left, right) in pairs if left != right), None)


# The result


def _check_result(bundle: Path | str, collected: Collected, found: BundleCheck) -> None:
    stored = Folder(bundle).load_struct(RESULT, StudyResult)
    if stored.metric not in METRICS.names():
        raise CheckpointError(f"{RESULT}: there is no metric {stored.metric!r}")
    sampling = Sampling(seed=stored.trials_seed, trials=stored.trials)
    check_sampling(sampling)
    result = collected.result(sampling)
    if not result.complete:
        problems = [f"{row.name}: {problem}" for row in result.rows for problem in row.problems]
        found.notes.append(f"the study is not complete: {'; '.join(problems)}")
    written = parse_json(load_member(bundle, RESULT), origin=RESULT)
    for problem in _differences(written, msgspec.to_builtins(result), "", found):
        found.add(f"{RESULT}: {problem}")
    found.derived |= {RESULT, *TABLES}
    for name, make in TABLES.items():
        lines = load_member(bundle, name).decode(errors="replace").split("\n")
        again = make(result).split("\n")
        for number, (line, right) in enumerate(zip_longest(lines, again, fillvalue=""), start=1):
            if line != right:
                found.add(f"{name}, line {number:,} is {line[:200]!r}, but the records give {right[:200]!r}")


def _differences(written: Any, derived: Any, place: str, found: BundleCheck) -> Iterator[str]:
    """Yield a few words about every value that differs, with its place, as in `rows.N 2.sets.test.scores.bleu.mean`."""
    if isinstance(written, dict) and isinstance(derived, dict):
        for key in dict.fromkeys([*written, *derived]):
            if key in written and key in derived:
                yield from _differences(written[key], derived[key], f"{place}.{key}".strip("."), found)
            else:
                missing = "is missing" if key in derived else "does not follow from the records"
                yield f"{f'{place}.{key}'.strip('.')} {missing}"
    elif isinstance(written, list) and isinstance(derived, list) and len(written) == len(derived):
        for number, (one, other) in enumerate(zip(written, derived, strict=True)):
            name = other.get("name") or other.get("test") if isinstance(other, dict) else None
            yield from _differences(one, other, f"{place}.{name or number}", found)
    else:
        found.values += 1
        if written != derived or isinstance(written, bool) != isinstance(derived, bool):
            yield f"{place} is {written!r}, derived {derived!r}"

"""Sources and references to compare on: files that are named, or the test sets of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.config import Bitext
from regard.errors import ConfigError, DataError
from regard.messages import counted
from regard.run.folder import RunFolder
from regard.tasks.test_sets import read_test_pairs, recipe_test_sets
from regard.text.bitext import new_report
from regard.text.corpus import Pair
from regard.text.lines import read_lines
from regard.text.text_report import TextReport
from regard.torch_loading import task_of_run


@dataclass(frozen=True)
class SourcesAndReferences:
    """A test set. Each list in `references` has one reference of every sentence."""

    name: str
    sources: list[str] | None
    references: list[list[str]]
    bitext: Bitext | None = None  # that a recipe names


def read_test_sets(
    runs: Sequence[RunFolder],
    *,
    only_runs: bool,
    source: Path | None,
    references: Sequence[Path],
    pairs: Path | None,
    to: str | None,
    data: Path | None,
    warn: Callable[[str], None],
) -> list[SourcesAndReferences]:
    """Return the test set that is named, or those of the first run's recipe.

    Text that a recipe would leave out (`data.on_error`) is left out only where all systems are runs: a file of translations
    has a line for it.
    """
    first = runs[0] if runs else None
    if pairs is not None:
        if source is not None or references:
            raise ConfigError("give --pairs, or --source and --reference, not both")
        recipe, name = (None, "") if first is None else (first.recipe(), first.path.name)
        found = read_test_pairs(pairs, recipe, name, to=to, report=TextReport())
        return [_of_pairs(pairs.name, found)]
    if references:
        if source is None and first is not None:
            raise ConfigError(f"{first.path.name} needs sources to translate; give them with --source")
        return [_read_lines(source, references)]
    if source is not None:
        raise ConfigError("--source needs --reference: the translations that outputs are compared with")
    if first is None:
        raise ConfigError(
            "files of translations need --reference FILE (more than once if there are several), or --pairs"
        )
    task = task_of_run(first)
    report = new_report(task.recipe.data) if only_runs else TextReport()
    sets = recipe_test_sets(task, first.path, to=to, data=data, report=report)
    for sentence in report.sentences():
        warn(sentence)
    return [_of_pairs(name, found, task.recipe.data.test[name]) for name, found in sets.items()]


def _of_pairs(name: str, pairs: Sequence[Pair], bitext: Bitext | None = None) -> SourcesAndReferences:
    return SourcesAndReferences(name, [pair.source for pair in pairs], [[pair.target for pair in pairs]], bitext)


def _read_lines(source: Path | None, references: Sequence[Path]) -> SourcesAndReferences:
    files = [*references, *([] if source is None else [source])]
    texts = [read_lines(path) for path in files]
    for path, lines in zip(files, texts, strict=True):
        if len(lines) != len(texts[0]):
            raise DataError(
                f"{path} has {counted(len(lines), 'line')} but {files[0]} has {len(texts[0]):,}; line N of one must "
                "belong to line N of the other"
            )
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                raise DataError(f"line {number:,} of {path} is empty; fill it in, or remove that line of every file")
    sources = None if source is None else texts[-1]
    return SourcesAndReferences(references[0].name, sources, texts[: len(references)])

"""What the arguments of a comparison name: runs, whose models translate, and files of translations."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from regard.comparing.test_sets import SourcesAndReferences
from regard.config import SearchOptions
from regard.decoding.options import describe_search
from regard.errors import CheckpointError, ConfigError, DataError
from regard.loading import load, require_translation
from regard.messages import counted
from regard.run.finding import find_run
from regard.run.folder import RunFolder
from regard.text.lines import read_lines
from regard.text.pair import Pair, tagged
from regard.torch_loading import task_of_run


@dataclass(frozen=True)
class System:
    """A run, or a file with one translation per line."""

    name: str  # the last part of the path, or as many as it takes to tell systems apart
    path: str  # as it was given
    run: RunFolder | None


def find_systems(given: Sequence[Path | str]) -> list[System]:
    """Return the systems of these names. Raise an error if there are fewer than two, or if one is there twice."""
    if len(given) < 2:
        raise ConfigError("a comparison needs two systems or more; regard evaluate scores a single run")
    runs = [_run_of(one) for one in given]
    places = [os.path.realpath(one if run is None else run.name_in_use) for one, run in zip(given, runs, strict=True)]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise ConfigError(f"{given[number]} is named twice; name each system once, the baseline first")
    names = short_names([str(one) for one in given])
    return [System(name, str(one), run) for name, one, run in zip(names, given, runs, strict=True)]


def _run_of(given: Path | str) -> RunFolder | None:
    """Return the run that is meant; None for a file of translations."""
    path = Path(given)
    if path.exists() and not path.is_dir():
        return None
    try:
        run = find_run(given)
    except CheckpointError as error:
        if path.is_dir():
            raise
        raise DataError(f"there is no file {given} of translations; {error}") from error
    require_translation(given, "regard compare")
    return run


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the last parts of each path, as many as it takes to tell all of them apart."""
    parts = [PurePath(os.path.normpath(path)).parts for path in paths]
    for count in range(1, max(map(len, parts)) + 1):
        names = [str(PurePath(*one[-count:])) for one in parts]
        if len(set(names)) == len(names):
            return names
    return list(paths)


def read_outputs(system: System, sets: Sequence[SourcesAndReferences]) -> list[str]:
    """Return the translations in a file, of which each belongs to a line of the only test set."""
    if len(sets) > 1:
        names = ", ".join(one.name for one in sets)
        raise ConfigError(
            f"{system.path} has the translations of one test set, but the recipe has {names}; name one with --reference"
        )
    [only], lines = sets, read_lines(Path(system.path))
    if len(lines) != len(only.references[0]):
        raise DataError(
            f"{system.path} has {counted(len(lines), 'line')} but {only.name} has {len(only.references[0]):,}; line N must "
            "be the translation of sentence N"
        )
    return lines


def translate_sets(
    system: System,
    sets: Sequence[SourcesAndReferences],
    *,
    to: str | None,
    options: SearchOptions | None,
    device: str,
    warn: Callable[[str], None],
    tell: Callable[[str], None],
) -> list[list[str]]:
    """Return the translations of each test set by the model of a run."""
    assert system.run is not None
    task = task_of_run(system.run)
    predictor = load(system.run.name_in_use, device=device, warn=warn)
    if to is not None and task.recipe.data.multilingual:
        predictor = task.into(predictor, to)
    found = []
    for one in sets:
        assert one.sources is not None
        tell(f"translating {counted(len(one.sources), 'sentence')} of {one.name} with {system.name} ...")
        # The test set may be of another run. Of the symbols in front of sources, those are used that this run knows.
        own = () if one.bitext is None else task.recipe.data.tags_of(one.bitext)
        tags = tuple(tag for tag in own if tag in task.recipe.data.tags)
        pairs = tagged([Pair(source, "") for source in one.sources], tags)
        found.append(task.outputs(predictor, pairs, options=options))
    return found


def search_of(system: System, options: SearchOptions | None) -> str | None:
    """Return how a run searches, in a few words; None for a file."""
    return None if system.run is None else describe_search(system.run.recipe().decode.with_given(options))

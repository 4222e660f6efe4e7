"""The scores of a run on test sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.config import SearchOptions, SearchPrecision
from regard.decoding.options import describe_search
from regard.errors import ConfigError
from regard.loading import EngineChoice, load
from regard.messages import warn_caller
from regard.metrics import Score, left_out_metrics
from regard.run.finding import find_run
from regard.tasks.test_sets import read_test_pairs, recipe_test_sets
from regard.text.bitext import data_folders, new_report, pairs_fingerprint
from regard.text.corpus import read_pairs
from regard.torch_loading import task_of_run


@dataclass(frozen=True)
class Evaluation:
    """Scores of one test set."""

    name: str
    num_pairs: int
    search: str  # how outputs were found; empty for tasks that do not search
    scores: list[Score]
    sha256: str  # of the pairs, as in the fingerprint of the training text


def evaluate(
    run: Path | str,
    *,
    source: Path | str | None = None,
    reference: Path | str | None = None,
    pairs: Path | str | None = None,
    to: str | None = None,
    data: Path | str | None = None,
    options: SearchOptions | None = None,
    device: str = "auto",
    warn: Callable[[str], None] = warn_caller,
    rescorer: Path | str | None = None,
    reverse: Path | str | None = None,
    ensemble: Sequence[Path | str] = (),
    int8: bool = False,
    precision: SearchPrecision = "auto",
    engine: EngineChoice = "auto",
) -> list[Evaluation]:
    """Score a run on its recipe's test sets, or on the files given.

    Files are `source` and `reference`, line by line, or `pairs`, one table with both. `to` is the language of the
    references, of a model that has several; of the recipe's test sets, those in this language are scored. `rescorer`,
    `reverse`, `ensemble` and `engine` are those of `load`.
    """
    task = task_of_run(find_run(run))
    recipe = task.recipe
    if options is not None and not task.searches:
        raise ConfigError(f"{run} is a {task.name} run, whose outputs are not searched for: leave out search options")
    if (source is None) != (reference is None):
        raise ConfigError("give both --source and --reference, or neither to use the recipe's test sets")
    if pairs is not None and source is not None:
        raise ConfigError("give --pairs, or --source and --reference, not both")
    report = new_report(recipe.data)
    if pairs is not None:
        examples = read_test_pairs(Path(pairs), recipe, run, to=to, report=report)
        sets = {Path(pairs).name: task.with_files(examples, data_folders(data, Path(pairs).parent))}
    elif source is not None and reference is not None:
        examples = read_pairs(Path(source), Path(reference), report=report)
        sets = {Path(source).name: task.with_files(examples, data_folders(data, Path(source).parent))}
    else:
        sets = recipe_test_sets(task, run, to=to, data=data, report=report)
    for sentence in report.sentences():
        warn(sentence)
    predictor = load(
        run, device=device, warn=warn, rescorer=rescorer, reverse=reverse, ensemble=ensemble, int8=int8,
        precision=precision, engine=engine,
    )  # fmt: skip
    if to is not None:
        predictor = task.into(predictor, to)
    results = []
    searched = recipe.decode.with_given(options)
    models = 1 + len(ensemble)
    search = describe_search(searched, rescorer=rescorer is not None, reverse=reverse is not None, models=models)
    left_out: dict[str, None] = {}  # metrics, each with the reason; several sets may have the same
    for name, examples in sets.items():
        references = [pair.target for pair in examples]
        left_out |= dict.fromkeys(left_out_metrics(references, recipe.evaluate, compares=task.compares))
        scores = task.evaluate(predictor, examples, options=options, warn=warn)
        results.append(
            Evaluation(
                name, len(examples), search if task.searches else "", scores, str(pairs_fingerprint(examples)["sha256"])
            )
        )
    for sentence in left_out:
        warn(sentence)
    return results

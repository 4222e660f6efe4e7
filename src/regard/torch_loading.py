"""A run as a model of PyTorch, or as a predictor with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regard.config import SearchPrecision
from regard.decoding.cuda_graph_model import with_cuda_graphs
from regard.decoding.ensemble import Ensemble
from regard.decoding.translator import Translator
from regard.errors import CheckpointError, ConfigError
from regard.models import build_model, expected_shapes
from regard.models.base import Model, Seq2Seq
from regard.nn.device import pick_device, search_precision, use_device, use_threads
from regard.run.checkpoint import Checkpoint, load_weights
from regard.run.finding import find_run
from regard.run.folder import RECIPE, RunFolder
from regard.tasks import task_of
from regard.tasks.base import Predictor, Task


def load_model(run: Path | str, *, device: str = "auto") -> Model:
    """Return a run's model as a plain module, in evaluation mode: trainable, and not laid out for search."""
    return _load(run, device)[0]


def torch_predictor(
    runs: Sequence[Path | str],
    device: str,
    warn: Callable[[str], None],
    *,
    threads: int = 0,
    precision: SearchPrecision = "auto",
) -> Predictor:
    """Return the predictor of a run, or of an ensemble of translation runs.

    `threads` other than 0 is the number of CPU threads of PyTorch from now on.
    """
    use_threads(threads)
    models: list[Model] = []
    first_codec, first_task = None, None
    for run in runs:
        model, codec, task, temperature = _load(run, device)
        if first_task is None:
            first_codec, first_task = codec, task
        elif not codec.same_vocabulary(first_codec):
            raise ConfigError(f"{run} has another vocabulary than {runs[0]}; the runs of an ensemble share one")
        # The plain model is dropped; the predictor has a copy of its own.
        models.append(prepare_for_search(model, precision))
    assert first_task is not None
    predictor = first_task.predictor(models[0] if len(models) == 1 else Ensemble(models), first_codec, warn=warn)
    if isinstance(predictor, Translator) and len(models) == 1:  # each run is calibrated by itself
        predictor.calibrated_temperature = temperature
    return predictor


def prepare_for_search(model: Model, precision: SearchPrecision = "auto") -> Model:
    """Return a copy of a model as predictors use it: in the precision of search, and with recorded steps on a GPU."""
    dtype = search_precision(precision, next(model.parameters()).device, supported=model.searches_in_bfloat16)
    model = model.for_inference(precision=dtype)
    return with_cuda_graphs(model) if isinstance(model, Seq2Seq) else model


def _load(run: Path | str, device: str) -> tuple[Model, Any, Task[Any], float | None]:
    """Return a run's model on a device, its codec and its task, and the temperature if it has been calibrated."""
    where, folder = pick_device(device), find_run(run)
    task = task_of_run(folder)
    codec = task.load_codec(folder.codec_folder())
    # First: this says whether the model is as large as the recipe makes it.
    checkpoint, name = checked_weights(folder, task, codec)
    model = build_model(task.recipe.model, **task.sizes(codec))
    load_weights(model, checkpoint.weights, origin=f"{folder}/{name}")
    temperature = folder.calibrated_temperature(int(checkpoint.counters.get("step", 0)))
    return model.to(use_device(where)).eval(), codec, task, temperature


def task_of_run(folder: RunFolder) -> Task[Any]:
    """Return the task of a run. Its recipe may come from a stranger."""
    recipe = folder.recipe()
    try:
        return task_of(recipe)
    except ConfigError as error:
        raise CheckpointError(f"{folder.path / RECIPE} does not describe a model: {error}") from error


def checked_weights(folder: RunFolder, task: Task[Any], codec: Any) -> tuple[Checkpoint, str]:
    """Return a run's weights and their name, if they have the shapes that the recipe's model has."""
    try:
        expected = expected_shapes(task.recipe.model, **task.sizes(codec))
    except ConfigError as error:
        raise CheckpointError(f"{folder.path / RECIPE} does not describe a model: {error}") from error
    return folder.weights(expected)

"""A run as a model, or as a predictor: the model in use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.decoding.cuda_graph_model import with_cuda_graphs
from regard.decoding.translator import Translator
from regard.errors import CheckpointError, ConfigError
from regard.messages import warn_caller
from regard.models import build_model, expected_shapes
from regard.models.base import Model, Seq2Seq
from regard.nn.device import pick_device, use_device
from regard.nn.linear import refuse_without_int8
from regard.run.checkpoint import Checkpoint, load_weights
from regard.run.finding import find_run
from regard.run.folder import RECIPE, RunFolder
from regard.tasks import task_of
from regard.tasks.base import Predictor, Task
from regard.tasks.predictor import ignore
from regard.tasks.translation import TranslationTask


def load_model(run: Path | str, *, device: str = "auto") -> Model:
    """Return a run's model as a plain module, in evaluation mode: trainable, and not laid out for search."""
    return _load(run, device)[0]


def load(
    run: Path | str,
    *,
    device: str = "auto",
    warn: Callable[[str], None] = warn_caller,
    rescorer: Path | str | None = None,
    int8: bool = False,
) -> Predictor:
    """Return a predictor for a run: its final weights, or the newest checkpoint while training lasts.

    A checkpoint folder, RUN/checkpoints/step-N, may be given in place of its run. For translation the predictor is a
    `Translator`. `rescorer` is another translation run, whose model chooses among the candidates of a beam.
    `int8` multiplies large matrices as 8-bit integers: faster on a CPU, and nearly the same output.

    An input that is cut is reported with a `RegardWarning` of Python's warnings. A function given as `warn` receives the
    sentence instead; `lambda text: None` silences it.
    """
    if rescorer is not None:
        return load_translator(run, "rescoring", device=device, warn=warn, rescorer=rescorer, int8=int8)
    if int8:
        refuse_without_int8(pick_device(device))
    model, codec, task, temperature = _load(run, device)
    # The plain model is dropped; the predictor has a copy of its own.
    model = model.for_inference(int8=int8)
    if int8 and not model.uses_int8:
        warn("no matrix of this model is so large that 8-bit integers are faster; it computes in float32")
    predictor = task.predictor(with_cuda_graphs(model) if isinstance(model, Seq2Seq) else model, codec, warn=warn)
    if isinstance(predictor, Translator):
        predictor.calibrated_temperature = temperature
    return predictor


def load_translator(
    run: Path | str,
    verb: str,
    *,
    device: str = "auto",
    warn: Callable[[str], None] = warn_caller,
    rescorer: Path | str | None = None,
    int8: bool = False,
) -> Translator:
    """Return a translation run's model in use; refuse runs of other tasks, which `verb` cannot serve."""
    require_translation(run, verb)
    chooses = None if rescorer is None else _load_rescorer(rescorer, device)
    translator = load(run, device=device, warn=warn, int8=int8)
    assert isinstance(translator, Translator)
    translator.rescorer = chooses
    return translator


def require_translation(run: Path | str, verb: str) -> None:
    """Raise ConfigError for runs of other tasks, which `verb` cannot serve."""
    task = task_of_run(find_run(run))
    if task.name != TranslationTask.name:
        raise ConfigError(f"{run} is a {task.name} run, and {verb} is for translation; use regard evaluate, or look")


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


def _load_rescorer(run: Path | str, device: str) -> Translator:
    rescorer = load_translator(run, "rescoring", device=device, warn=ignore)
    if rescorer.model.non_autoregressive:
        raise ConfigError(f"{run} writes all tokens at once; only a model that writes token by token can rescore")
    return rescorer

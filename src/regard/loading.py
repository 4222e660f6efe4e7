"""A run as a model, or as a predictor: the model in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from regard.decoding.cuda_graph_model import with_cuda_graphs
from regard.decoding.ensemble import Ensemble
from regard.decoding.shortlist import Shortlist
from regard.decoding.translator import Translator
from regard.errors import CheckpointError, ConfigError
from regard.messages import warn_caller
from regard.models import build_model, expected_shapes
from regard.models.base import Model, Seq2Seq
from regard.nn.device import pick_device, use_device
from regard.nn.linear import refuse_without_int8
from regard.run.checkpoint import Checkpoint, load_weights
from regard.run.finding import find_run
from regard.run.folder import RECIPE, SHORTLIST, RunFolder
from regard.tasks import task_of
from regard.tasks.base import Predictor, Task
from regard.tasks.predictor import ignore
from regard.tasks.translation import TranslationTask
from regard.text.languages import languages_of


def load_model(run: Path | str, *, device: str = "auto") -> Model:
    """Return a run's model as a plain module, in evaluation mode: trainable, and not laid out for search."""
    return _load(run, device)[0]


def load(
    run: Path | str,
    *,
    device: str = "auto",
    warn: Callable[[str], None] = warn_caller,
    rescorer: Path | str | None = None,
    reverse: Path | str | None = None,
    ensemble: Sequence[Path | str] = (),
    int8: bool = False,
) -> Predictor:
    """Return a predictor for a run: its final weights, or the newest checkpoint while training lasts.

    A checkpoint folder, RUN/checkpoints/step-N, may be given in place of its run. For translation the predictor is a
    `Translator`. `rescorer` is another translation run, whose model chooses among the candidates of a beam; `reverse` is a
    run of the opposite direction that takes part in the choice. The runs of `ensemble`, which share the vocabulary of the
    first one, are searched together with it. `int8` multiplies large matrices as 8-bit integers: faster on a CPU, and
    nearly the same output.

    An input that is cut is reported with a `RegardWarning` of Python's warnings. A function given as `warn` receives the
    sentence instead; `lambda text: None` silences it.
    """
    verbs = {"rescoring": rescorer, "reranking": reverse, "an ensemble": ensemble or None}
    for verb, other in verbs.items():
        if other is not None:
            return load_translator(
                run, verb, device=device, warn=warn, rescorer=rescorer, reverse=reverse, ensemble=ensemble, int8=int8
            )
    return _predictor([run], device, warn, int8=int8)


def load_translator(
    run: Path | str,
    verb: str,
    *,
    device: str = "auto",
    warn: Callable[[str], None] = warn_caller,
    rescorer: Path | str | None = None,
    reverse: Path | str | None = None,
    ensemble: Sequence[Path | str] = (),
    int8: bool = False,
) -> Translator:
    """Return a translation run's model in use; refuse runs of other tasks, which `verb` cannot serve."""
    require_translation(run, verb)
    if isinstance(ensemble, str | Path):
        raise ConfigError("ensemble takes a list of runs; put the one run into brackets")
    for one in ensemble:
        require_translation(one, "an ensemble")
        if _direction(one) != _direction(run):
            raise ConfigError(f"{one} and {run} translate between other languages; the runs of an ensemble share them")
    chooses = None if rescorer is None else _load_rescorer(rescorer, device)
    if rescorer is not None and (theirs := _direction(rescorer)) and not set(_direction(run) or theirs) <= set(theirs):
        raise ConfigError(f"{rescorer} and {run} translate between other languages; a rescorer has those of the run")
    backward = None if reverse is None else _load_reverse(run, reverse, device)
    translator = _predictor([run, *ensemble], device, warn, int8=int8)
    assert isinstance(translator, Translator)
    translator.rescorer, translator.reverse = chooses, backward
    return translator


def _predictor(runs: Sequence[Path | str], device: str, warn: Callable[[str], None], *, int8: bool) -> Predictor:
    """Return the predictor of a run, or of an ensemble of translation runs."""
    if int8:
        refuse_without_int8(pick_device(device))
    models: list[Model] = []
    first_codec, first_task = None, None
    for run in runs:
        model, codec, task, temperature = _load(run, device)
        if first_task is None:
            first_codec, first_task = codec, task
        elif not codec.same_vocabulary(first_codec):
            raise ConfigError(f"{run} has another vocabulary than {runs[0]}; the runs of an ensemble share one")
        # The plain model is dropped; the predictor has a copy of its own.
        model = model.for_inference(int8=int8)
        if int8 and not model.uses_int8:
            warn("no matrix of this model is so large that 8-bit integers are faster; it computes in float32")
        models.append(with_cuda_graphs(model) if isinstance(model, Seq2Seq) else model)
    assert first_task is not None
    predictor = first_task.predictor(models[0] if len(models) == 1 else Ensemble(models), first_codec, warn=warn)
    if isinstance(predictor, Translator):
        size = predictor.tokenizers.target.size
        predictor.use_shortlist(partial(_read_shortlist, find_run(runs[0]), size))
    if isinstance(predictor, Translator) and len(models) == 1:  # each run is calibrated by itself
        predictor.calibrated_temperature = temperature
    return predictor


def _read_shortlist(folder: RunFolder, size: int) -> Shortlist | None:
    """Return what `regard align` wrote, if it did. Raise CheckpointError unless it is of a vocabulary of this size."""
    text = folder.read_extra(SHORTLIST)
    if text is None:
        return None
    with suppress(msgspec.DecodeError):
        if (found := msgspec.json.decode(text, type=Shortlist)).fits(size):
            return found
    raise CheckpointError(
        f"{folder.path / SHORTLIST} is damaged, or of another vocabulary; make it again with regard align --run"
    )


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


def _load_rescorer(run: Path | str, device: str, verb: str = "rescoring") -> Translator:
    rescorer = load_translator(run, verb, device=device, warn=ignore)
    if rescorer.model.non_autoregressive:
        raise ConfigError(f"{run} outputs all tokens at once; only a model that outputs token by token can rescore")
    return rescorer


def _load_reverse(run: Path | str, reverse: Path | str, device: str) -> Translator:
    """Return the model of the opposite direction."""
    forward, backward = _direction(run), _direction(reverse)
    if len(backward) > 1:
        raise ConfigError(f"{reverse} has several pairs of languages; a reverse model has one")
    if backward and forward and backward[0][::-1] not in forward:
        (source, target), (first, second) = backward[0], forward[0]
        raise ConfigError(
            f"{reverse} translates from {source} to {target}; a reverse model of {run} translates from {second} to {first}"
        )
    return _load_rescorer(reverse, device, "reranking")


def _direction(run: Path | str) -> tuple[tuple[str, str], ...]:
    """Return the pairs of languages of a translation run, as far as its recipe or its name tells them."""
    data = find_run(run).recipe().data
    if len(data.language_pairs) > 1:
        return data.language_pairs
    found = languages_of(data, Path(run).name)
    return () if found is None else (found,)

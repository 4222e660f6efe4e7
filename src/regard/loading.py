"""A run as a predictor: its model in use, computed by PyTorch or by the engine. Without torch where the engine computes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from regard.config import Recipe, SearchPrecision
from regard.decoding.shortlist import Shortlist
from regard.decoding.translator import Translator
from regard.engine.loading import EngineRun, why_not_in_engine
from regard.errors import CheckpointError, ConfigError, pip_install
from regard.messages import warn_caller
from regard.run.finding import find_run
from regard.run.folder import SHORTLIST, RunFolder
from regard.text.languages import languages_of

if TYPE_CHECKING:
    from regard.models.base import Model
    from regard.tasks.base import Predictor

EngineChoice = Literal["auto", "engine", "torch"]
GPUS = ("nvidia[0-9]*", "dxg", "kfd")  # in /dev, where there is a GPU that PyTorch may find


def load(
    run: Path | str,
    *,
    device: str = "auto",
    warn: Callable[[str], None] = warn_caller,
    rescorer: Path | str | None = None,
    reverse: Path | str | None = None,
    ensemble: Sequence[Path | str] = (),
    int8: bool = False,
    engine: EngineChoice = "auto",
    threads: int = 0,
    precision: SearchPrecision = "auto",
) -> Predictor:
    """Return a predictor for a run: its final weights, or the newest checkpoint while training lasts.

    A checkpoint folder, RUN/checkpoints/step-N, may be given in place of its run. For translation the predictor is a
    `Translator`. `rescorer` is another translation run, whose model chooses among the candidates of a beam; `reverse` is a
    run of the opposite direction that takes part in the choice. The runs of `ensemble`, which share the vocabulary of the
    first one, are searched together with it. `int8` multiplies large matrices as 8-bit integers: faster on a CPU, and
    nearly the same output.

    `engine` says what computes: "engine" is the engine in C, for Transformers on a CPU, which does not import torch;
    "torch" is PyTorch; "auto" is the engine wherever it can. `threads` are those of search on a CPU; 0: one per core.
    `precision` is that of search on a GPU: "auto" is bfloat16 for Transformers, if the GPU supports it.

    An input that is cut is reported with a `RegardWarning` of Python's warnings. A function given as `warn` receives the
    sentence instead; `lambda text: None` silences it.
    """
    verbs = {"rescoring": rescorer, "reranking": reverse, "an ensemble": ensemble or None}
    for verb, other in verbs.items():
        if other is not None:
            return load_translator(
                run,
                verb,
                device=device,
                warn=warn,
                rescorer=rescorer,
                reverse=reverse,
                ensemble=ensemble,
                int8=int8,
                engine=engine,
                threads=threads,
                precision=precision,
            )
    return _predictor([run], device, warn, int8=int8, engine=engine, threads=threads, precision=precision)


def load_translator(
    run: Path | str,
    verb: str,
    *,
    device: str = "auto",
    warn: Callable[[str], None] = warn_caller,
    rescorer: Path | str | None = None,
    reverse: Path | str | None = None,
    ensemble: Sequence[Path | str] = (),
    int8: bool | None = False,
    engine: EngineChoice = "auto",
    threads: int = 0,
    precision: SearchPrecision = "auto",
) -> Translator:
    """Return a translation run's model in use; refuse runs of other tasks, which `verb` cannot serve.

    `int8` None: 8-bit integers wherever the engine computes.
    """
    require_translation(run, verb)
    if isinstance(ensemble, str | Path):
        raise ConfigError("ensemble takes a list of runs; put the one run into brackets")
    for one in ensemble:
        require_translation(one, "an ensemble")
        if _direction(one) != _direction(run):
            raise ConfigError(f"{one} and {run} translate between other languages; the runs of an ensemble share them")
    load_other = partial(_load_rescorer, device=device, engine=engine, threads=threads)
    chooses = None if rescorer is None else load_other(rescorer, "rescoring")
    if rescorer is not None and (theirs := _direction(rescorer)) and not set(_direction(run) or theirs) <= set(theirs):
        raise ConfigError(f"{rescorer} and {run} translate between other languages; a rescorer has those of the run")
    backward = None
    if reverse is not None:
        _refuse_other_direction(run, reverse)
        backward = load_other(reverse, "reranking")
    translator = _predictor(
        [run, *ensemble], device, warn, int8=int8, engine=engine, threads=threads, precision=precision
    )
    assert isinstance(translator, Translator)
    translator.rescorer, translator.reverse = chooses, backward
    return translator


def _predictor(
    runs: Sequence[Path | str],
    device: str,
    warn: Callable[[str], None],
    *,
    int8: bool | None,
    engine: EngineChoice,
    threads: int,
    precision: SearchPrecision,
) -> Predictor:
    """Return the predictor of a run, or of an ensemble of translation runs."""
    if engine not in ("auto", "engine", "torch"):
        raise ConfigError(f"engine is {engine!r}; it must be auto, engine or torch")
    folder = find_run(runs[0])
    found: EngineRun | str = "PyTorch was asked for" if engine == "torch" else _in_engine(runs, folder, device)
    predictor: Predictor | None = None
    if isinstance(found, EngineRun):
        if precision == "bfloat16":
            raise ConfigError("precision is bfloat16, which is for search on a GPU; leave it out, or use device=cuda")
        try:
            predictor = found.translator(warn, partial(_torch_model, folder), int8=int8 is not False, threads=threads)
        except ConfigError as error:  # an option of the model that the engine does not have
            found = str(error)
    if predictor is None:
        assert isinstance(found, str)
        if engine == "engine":
            raise ConfigError(f"the engine cannot compute {runs[0]}: {found}; leave out engine, or use engine=torch")
        if int8:
            raise ConfigError(f"the engine computes 8-bit integers, and not for {runs[0]}: {found}; leave out int8")
        if not torch_installed():
            raise ConfigError(f"{runs[0]} needs PyTorch ({found}), which is not installed: {pip_install('torch')}")
        from regard.torch_loading import torch_predictor

        predictor = torch_predictor(runs, device, warn, threads=threads, precision=precision)
    if isinstance(predictor, Translator):
        predictor.use_shortlist(partial(_read_shortlist, folder, predictor.tokenizers.target.size))
    return predictor


def _torch_model(folder: RunFolder, weights: str) -> Model:
    """Return the model of a run with weights of this name ("final", or a checkpoint), on the CPU, laid out for search."""
    if not torch_installed():
        raise ConfigError(
            f"this needs PyTorch, unlike translations, scores and traces; it is not installed: {pip_install('torch')}"
        )
    from regard.torch_loading import load_model

    # The run may have newer checkpoints by now.
    run = folder.path if weights == "final" else folder.path / "checkpoints" / weights
    return load_model(run, device="cpu").for_inference()


def _in_engine(runs: Sequence[Path | str], folder: RunFolder, device: str) -> EngineRun | str:
    """Return a run as the engine reads it, or why PyTorch computes it."""
    if len(runs) > 1:
        return "it does not search with an ensemble"
    if device not in ("auto", "cpu"):
        return f"it computes on a CPU, and device is {device}"
    if reason := why_not_in_engine():
        return reason
    found = EngineRun.read(folder)
    return "it computes on a CPU, and there is a GPU" if device == "auto" and gpu_present() else found


def torch_installed() -> bool:
    """Return whether PyTorch can be imported, without importing it."""
    with suppress(ImportError, ValueError):
        return "torch" in sys.modules or find_spec("torch") is not None
    return False


def gpu_present() -> bool:
    """Return whether PyTorch finds a GPU. It is imported and asked only where the system has one."""
    if not torch_installed():
        return False
    if "torch" not in sys.modules:
        if sys.platform == "darwin":
            return False
        if sys.platform == "linux" and not any(one for name in GPUS for one in Path("/dev").glob(name)):
            return False
    import torch

    return torch.cuda.is_available()


def computes_on_gpu(device: str) -> bool:
    """Return whether a device is a GPU. Raise ConfigError if it is none that can be used."""
    if device in ("auto", "cpu"):
        return device == "auto" and gpu_present()
    if not torch_installed():
        raise ConfigError(f"device is {device!r}, and PyTorch is not installed; use cpu")
    from regard.nn.device import pick_device

    return pick_device(device).type == "cuda"


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


def is_transformer_translation(recipe: Recipe) -> bool:
    """Return whether a run translates with a Transformer. Known without the families of models, which import torch."""
    return recipe.model.get("kind") == "transformer" and recipe.task in (None, "translation")


def require_torch(run: Path | str) -> None:
    """Raise ConfigError unless PyTorch, which a run needs that is no translation with a Transformer, is installed."""
    if not torch_installed():
        raise ConfigError(
            f"{run} needs PyTorch, since the engine computes Transformers alone; it is not installed: {pip_install('torch')}"
        )


def require_translation(run: Path | str, verb: str) -> None:
    """Raise ConfigError for runs of other tasks, which `verb` cannot serve."""
    folder = find_run(run)
    if is_transformer_translation(folder.recipe()):
        return
    require_torch(run)
    from regard.torch_loading import task_of_run

    task = task_of_run(folder)
    if task.name != "translation":
        raise ConfigError(f"{run} is a {task.name} run, and {verb} is for translation; use regard evaluate, or look")


def _load_rescorer(run: Path | str, verb: str, *, device: str, engine: EngineChoice, threads: int) -> Translator:
    rescorer = load_translator(
        run, verb, device=device, warn=lambda text: None, engine=engine, threads=threads, precision="float32"
    )
    if rescorer.backend.non_autoregressive:
        raise ConfigError(f"{run} outputs all tokens at once; only a model that outputs token by token can rescore")
    return rescorer


def _refuse_other_direction(run: Path | str, reverse: Path | str) -> None:
    """Raise ConfigError if a run is not of the opposite direction of another one."""
    forward, backward = _direction(run), _direction(reverse)
    if len(backward) > 1:
        raise ConfigError(f"{reverse} has several pairs of languages; a reverse model has one")
    if backward and forward and backward[0][::-1] not in forward:
        (source, target), (first, second) = backward[0], forward[0]
        raise ConfigError(
            f"{reverse} translates from {source} to {target}; a reverse model of {run} translates from {second} to {first}"
        )


def _direction(run: Path | str) -> tuple[tuple[str, str], ...]:
    """Return the pairs of languages of a translation run, as far as its recipe or its name tells them."""
    data = find_run(run).recipe().data
    if len(data.language_pairs) > 1:
        return data.language_pairs
    found = languages_of(data, Path(run).name)
    return () if found is None else (found,)

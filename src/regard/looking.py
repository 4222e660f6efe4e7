"""What a run's model did with one input. Without torch where the engine computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from regard.decoding.requests import Request
from regard.decoding.translator import Translator
from regard.errors import ConfigError, DecodeError
from regard.explain.trace import Trace, TraceOptions
from regard.explain.translation_trace import trace_translation
from regard.loading import EngineChoice, is_transformer_translation, load, require_torch
from regard.messages import warn_caller
from regard.run.finding import find_run

if TYPE_CHECKING:
    from regard.decoding.sampling import SampleOptions


def look(
    run: Path | str,
    text: str,
    *,
    beam: int | None = None,
    alternatives: int = 3,
    device: str = "auto",
    sample: SampleOptions | None = None,
    to: str | None = None,
    engine: EngineChoice = "auto",
    tell: Callable[[str], None] = lambda text: None,
    warn: Callable[[str], None] = warn_caller,
) -> Trace:
    """Return what a run's model did with one input: tokens, attention weights, probabilities, and other outputs.

    With `sample` the output of a language model is drawn at random. `to` is the language to translate into, of a model that
    has several. `engine` is that of `load`. `tell` is called with what is done next, as a text for the user, and `warn` with
    a sentence about what the model does not know of the text.
    """
    if not isinstance(text, str):
        raise DecodeError(f"look() takes one text (str), not {type(text).__name__}")
    if is_transformer_translation(find_run(run).recipe()):
        if sample is not None:
            raise _no_sampling(run, "translation")
        tell(f"loading {run}")
        translator = load(run, device=device, precision="float32", engine=engine)
        assert isinstance(translator, Translator)
        chosen = translator if to is None else translator.into(to)
        _warn_of_unknown(chosen, text, warn)
        options = chosen.options.replace(beam=beam)
        return trace_translation(
            chosen, text, options=options, alternatives=alternatives, name=str(run), redraw=True, tell=tell
        )
    if engine == "engine":
        raise ConfigError(f"the engine traces translations of Transformers, which {run} is not; leave out engine")
    require_torch(run)
    from regard.torch_loading import task_of_run

    task = task_of_run(find_run(run))
    if beam is not None and not task.searches:
        raise ConfigError(f"{run} is a {task.name} run, whose outputs are not searched for: leave out the beam")
    if sample is not None and not task.samples:
        raise _no_sampling(run, task.name)
    tell(f"loading {run}")
    predictor = load(run, device=device, engine="torch", precision="float32")
    if isinstance(predictor, Translator):
        _warn_of_unknown(predictor, text, warn)
    tell("computing the output and its attention")
    if to is not None:
        predictor = task.into(predictor, to)
    return task.trace(predictor, text, TraceOptions(str(run), beam, alternatives, sample))


def _warn_of_unknown(translator: Translator, text: str, warn: Callable[[str], None]) -> None:
    if (unknown := translator.unknown_text()) is not None:
        unknown.read(translator.unprotected(Request(text)), 1)
        if sentence := unknown.sentence(text="the text"):
            warn(sentence)


def _no_sampling(run: Path | str, task: str) -> ConfigError:
    return ConfigError(f"{run} is a {task} run; only language models sample: leave out temperature and top-k")

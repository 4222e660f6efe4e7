"""Beginning a run with the weights of another one (`train.init`), of the same task or of another.

By default the new run uses the tokenizers of the other one, and every tensor of both models must have its counterpart. With
`train.init_tokenizer = "new"` rows of embeddings are found by the text of their tokens. With `train.init_partial` what has
no counterpart keeps its random values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from regard.config import Recipe, TokenizerConfig
from regard.errors import CheckpointError, ConfigError
from regard.messages import counted
from regard.models import expected_shapes
from regard.models.base import Model
from regard.run.checkpoint import Checkpoint, model_weights
from regard.run.finding import find_run
from regard.run.folder import INIT, NEW, RECIPE, RunFolder
from regard.tasks import task_of
from regard.tasks.base import Task
from regard.tasks.carry_over import Axes, copy_same, counterparts, vocabulary_axes
from regard.tasks.corpus import TrainingData
from regard.tasks.word_codec import every_token, tokenizer_of

SHOWN = 5  # names in a message
SIDES: tuple[Literal["source", "target"], ...] = ("source", "target")


@dataclass(frozen=True)
class InitialRun:
    """The run that another one begins with."""

    folder: RunFolder
    task: Task[Any]
    codec: Any
    checkpoint: Checkpoint
    name: str  # of the weights

    @property
    def digest(self) -> str:
        """The SHA-256 digest of its weights."""
        return RunFolder(self.folder.path, checkpoint=self.name).weights_digest()

    def fingerprint(self, new: Sequence[str]) -> dict[str, int | str]:
        """Return what the folder of the new run says of it. `new` are the parameters that do not come from it."""
        step = self.checkpoint.counters.get("step", 0)
        found: dict[str, int | str] = {"run": self.folder.path.name, "step": step, "sha256": self.digest}
        return {**found, NEW: " ".join(new)} if new else found


@dataclass(frozen=True)
class Beginning:
    """What a model has taken over."""

    text: str  # one sentence about it
    new: tuple[str, ...]  # parameters with values that do not come from the other run


def find_initial_run(recipe: Recipe) -> InitialRun | None:
    """Return the run that the recipe begins with, if it names one, intact and with the shapes of its own recipe."""
    if recipe.train.init is None:
        return None
    folder = find_run(recipe.train.init)
    try:
        task = task_of(folder.recipe())
        codec = task.load_codec(folder.codec_folder())
        expected = expected_shapes(task.recipe.model, **task.sizes(codec))
    except ConfigError as error:
        raise CheckpointError(f"{folder.path / RECIPE} does not describe a model: {error}") from error
    return InitialRun(folder, task, codec, *folder.weights(expected))


def new_parameters(run: RunFolder) -> tuple[str, ...]:
    """Return the parameters of a run that has begun which do not come from the run it began with."""
    return tuple(str(run.corpus().get(INIT, {}).get(NEW, "")).split())


# Tokenizers


def fit_codec(task: Task[Any], train: TrainingData, initial: InitialRun | None) -> Any:
    """Return a codec for the training examples, with the tokenizers of the initial run unless the recipe wants new ones."""
    if initial is None or task.recipe.train.init_tokenizer == "new":
        return task.fit(train)
    return task.fit_like(train, initial.codec)


def describe_tokenizer(recipe: Recipe, initial: InitialRun, codec: Any) -> Recipe:
    """Return the recipe with the `[tokenizer]` table of the run it begins with, if its tokenizers are used."""
    own, settings = tokenizer_of(codec), initial.task.recipe.tokenizer
    for side in SIDES:
        theirs = tokenizer_of(initial.codec, target=side == "target")
        # There may be more tags behind the tokens of text.
        if own is not None and theirs is not None and every_token(own)[: theirs.size] == every_token(theirs):
            return with_tokenizer(recipe, settings if type(codec) is type(initial.codec) else settings.side(side))
    return recipe


def with_tokenizer(recipe: Recipe, settings: TokenizerConfig) -> Recipe:
    """Return the recipe with other settings of the tokenizer. Sampling is how a tokenizer is used, and stays."""
    own = recipe.tokenizer
    sides = {
        name: msgspec.structs.replace(side, sampling=own.side(name).sampling)
        for name in SIDES
        if (side := getattr(settings, name)) is not None
    }
    return msgspec.structs.replace(recipe, tokenizer=msgspec.structs.replace(settings, sampling=own.sampling, **sides))


# Weights


def begin_with(model: Model, task: Task[Any], codec: Any, initial: InitialRun) -> Beginning:
    """Copy the weights of the other run into the model; refuse what does not fit unless `train.init_partial` is set."""
    own, theirs = model_weights(model), initial.checkpoint.weights
    own_axes, their_axes = vocabulary_axes(task, codec), vocabulary_axes(initial.task, initial.codec)
    names = counterparts(own, theirs)
    rows: dict[str, str] = {}  # of which only some have a counterpart
    unfit: list[str] = []
    with torch.no_grad():
        for name, other in names.items():
            weight, axes = own[name], own_axes.get(name, {})
            found = copy_same(weight, axes, theirs[other], their_axes.get(other, {}))
            if not found or min(found) == 0:
                unfit.append(name)
            elif any(found[dim] < weight.size(dim) or found[dim] < theirs[other].size(dim) for dim in axes):
                rows[name] = f"{found[0]:,} of {counted(len(weight), 'row')} of {name}"
    taken = {name: other for name, other in names.items() if name not in unfit}
    if not taken:
        raise ConfigError(
            f"train.init={initial.folder} has no weights of the names and shapes of this model; "
            "give it the same model.width and layers, or leave out train.init"
        )
    missing = [name for name in own if name not in names]
    extra = [name for name in theirs if name not in names.values()]
    if not task.recipe.train.init_partial:
        # Rows of a new tokenizer are new by intention, and so are those of new tags.
        by_text = _reread(task, codec, initial) if task.recipe.train.init_tokenizer == "new" else set()
        tags = set(getattr(codec, "tags", ()))
        by_text |= {name for name in rows if _adds_only(tags, own_axes[name], their_axes[names[name]])}
        shapes = {name: f"{name} ({_size(own[name])}, there {_size(theirs[names[name]])})" for name in unfit}
        other_rows = [text for name, text in rows.items() if name not in by_text]
        problems = [
            *_listed("missing there", missing),
            *_listed("not in this model", extra),
            *_listed("of another shape", list(shapes.values())),
            *_listed("only partly matched by token text", other_rows),
        ]
        if problems:
            raise ConfigError(
                f"train.init={initial.folder} does not fit this model ({'; '.join(problems)}); describe its model in "
                "[model], or set train.init_partial=true to begin with what fits"
            )
    parts = [f"initialized {len(taken)} of {counted(len(own), 'tensor')} from {initial.folder}"]
    parts += [f"rows matched by token text: {', '.join(rows.values())}"] if rows else []
    parts += _listed("new", [name for name in own if name not in taken])
    parts += _listed("unused", [name for name in theirs if name not in taken.values()])
    return Beginning("; ".join(parts), (*missing, *unfit, *rows))


def _reread(task: Task[Any], codec: Any, initial: InitialRun) -> set[str]:
    """Return the parameters whose rows would stand for other text if the tokenizers of the other run were used."""
    theirs = task.vocabularies(task.take_over(codec, initial.codec))
    own = task.vocabularies(codec)
    other = {name for name, texts in own.items() if list(texts) != list(theirs[name])}
    texts = [list(own[name]) for name in other]
    axes = vocabulary_axes(task, codec)
    return {
        name
        for name, found in axes.items()
        if any(list(one)[: len(text)] == text for one in found.values() for text in texts)
    }


def _adds_only(tags: set[str], axes: Axes, their_axes: Axes) -> bool:
    """Return whether a parameter has the rows of the other run, and besides them those of tags alone."""
    new = {text for dim, texts in axes.items() for text in set(texts) - set(their_axes[dim])}
    return new <= tags and all(set(their_axes[dim]) <= set(texts) for dim, texts in axes.items())


def _size(weight: Tensor) -> str:
    return " x ".join(map(str, weight.shape)) or "one number"


def _listed(what: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return [f"{what}: {', '.join(names[:SHOWN])}{more}"]

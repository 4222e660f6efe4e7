"""Beginning a run with the weights of another one (`train.init`), of the same task or of another.

Tensors are taken over by name and shape. Where a dimension is that of a vocabulary (tokens, characters, labels), what stands
for the same text is taken over, so vocabularies may differ. What has no counterpart keeps its random values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.config import Recipe
from regard.errors import CheckpointError, ConfigError
from regard.messages import counted
from regard.models import expected_shapes
from regard.models.base import Model
from regard.run.checkpoint import Checkpoint, model_weights
from regard.run.finding import find_run
from regard.run.folder import RECIPE, RunFolder
from regard.tasks import task_of
from regard.tasks.base import Task

# What the encoder of a translation model is called in models without a decoder.
RENAMES = [
    (re.compile(r"^encoder\.(?=\d)"), "encoder.layers."),
    (re.compile(r"^encoder_norm\."), "encoder.norm."),
    (re.compile(r"^source_positions\."), "encoder.positions."),
    (re.compile(r"^(source|target)_embedding$"), "embedding"),
]
SHOWN = 5  # names in a message

Axes = Mapping[int, Sequence[str]]  # what the entries of a dimension stand for, by the number of the dimension


@dataclass(frozen=True)
class InitialRun:
    """The run that another one begins with."""

    folder: RunFolder
    task: Task[Any]
    codec: Any
    checkpoint: Checkpoint
    name: str  # of the weights

    def fingerprint(self) -> dict[str, int | str]:
        """Return what the folder of the new run says of it."""
        run = RunFolder(self.folder.path, checkpoint=self.name)
        step = self.checkpoint.counters.get("step", 0)
        return {"run": self.folder.path.name, "step": step, "sha256": run.weights_digest()}


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


def codec_with(task: Task[Any], codec: Any, initial: InitialRun) -> Any:
    """Return the codec with the tokenizers of the other run, if both recipes have the same settings for them."""
    same = task.recipe.tokenizer == initial.task.recipe.tokenizer
    return task.take_over(codec, initial.codec) if same else codec


def begin_with(model: Model, task: Task[Any], codec: Any, initial: InitialRun) -> str:
    """Copy the weights that fit into the model, and return a sentence about what was copied."""
    own, theirs = model_weights(model), initial.checkpoint.weights
    own_axes, their_axes = vocabulary_axes(task, codec), vocabulary_axes(initial.task, initial.codec)
    names = counterparts(own, theirs)
    taken: dict[str, str] = {}
    partly: list[str] = []
    with torch.no_grad():
        for name, other in names.items():
            weight, axes = own[name], own_axes.get(name, {})
            found = copy_same(weight, axes, theirs[other], their_axes.get(other, {}))
            if found and min(found) > 0:
                taken[name] = other
                rows = counted(len(weight), "row") if weight.dim() else ""
                partly += [f"{found[0]:,} of {rows} of {name}"] if axes and found[0] < len(weight) else []
    if not taken:
        raise ConfigError(
            f"train.init={initial.folder} has no weights of the names and shapes of this model; "
            "give it the same model.width and layers, or leave out train.init"
        )
    parts = [f"begins with {len(taken)} of {counted(len(own), 'tensor')} from {initial.folder}"]
    parts += [f"found by their text: {', '.join(partly)}"] if partly else []
    parts += _listed("new", [name for name in own if name not in taken])
    parts += _listed("not used", [name for name in theirs if name not in taken.values()])
    return "; ".join(parts)


def vocabulary_axes(task: Task[Any], codec: Any) -> dict[str, Axes]:
    """Return the dimensions of parameters that are those of a vocabulary: their sizes change with its size."""
    sizes, vocabularies = task.sizes(codec), task.vocabularies(codec)
    shapes = expected_shapes(task.recipe.model, **sizes)
    found: dict[str, dict[int, Sequence[str]]] = {}
    for texts in {id(texts): texts for texts in vocabularies.values()}.values():
        # A joint vocabulary has two sizes, which must be equal.
        names, other_size = [name for name, one in vocabularies.items() if one is texts], abs(len(texts) - 1) or 2
        others = expected_shapes(task.recipe.model, **{**sizes, **dict.fromkeys(names, other_size)})
        for parameter, shape in others.items():
            for dim, (other, size) in enumerate(zip(shape, shapes[parameter], strict=True)):
                if other != size:
                    # A model may add entries of its own, such as a mask.
                    added = [f"\0{number}" for number in range(size - len(texts))]
                    found.setdefault(parameter, {})[dim] = [*texts, *added]
    return dict(found)


def copy_same(weight: Tensor, axes: Axes, given: Tensor, their_axes: Axes) -> list[int]:
    """Copy a tensor, or those of its entries that stand for the same text. Return how many there are per dimension.

    Nothing is copied, and the list is empty, if shapes do not fit or vocabularies are not in the same dimensions.
    """
    others = [dim for dim in range(weight.dim()) if dim not in axes]
    if weight.dim() != given.dim() or axes.keys() != their_axes.keys():
        return []
    if any(weight.size(dim) != given.size(dim) for dim in others):
        return []
    places = [_same_texts(axes[dim], their_axes[dim]) if dim in axes else None for dim in range(weight.dim())]
    _copy_places(weight, given.to(weight), places)
    counts = [weight.size(dim) if found is None else len(found) for dim, found in enumerate(places)]
    return counts or [1]


def _copy_places(weight: Tensor, given: Tensor, places: Sequence[list[tuple[int, int]] | None]) -> None:
    """Copy the entries of a tensor to places of another, which are given per dimension; None: all of it."""
    dim = next((dim for dim, found in enumerate(places) if found is not None), None)
    if dim is None:
        weight.copy_(given)
        return
    found = torch.tensor(places[dim] or [], dtype=torch.int64, device=weight.device).reshape(-1, 2)
    part = weight.index_select(dim, found[:, 0])
    rest = [None if number == dim else one for number, one in enumerate(places)]
    _copy_places(part, given.index_select(dim, found[:, 1]), rest)
    weight.index_copy_(dim, found[:, 0], part)


def _same_texts(own: Sequence[str], theirs: Sequence[str]) -> list[tuple[int, int]]:
    """Return the places of the same text in both."""
    # Reserved tokens come first, and a word of the text may look like one.
    places = {text: place for place, text in reversed(list(enumerate(theirs)))}
    return [(place, places[text]) for place, text in enumerate(own) if text in places]


def counterparts(own: Iterable[str], theirs: Iterable[str]) -> dict[str, str]:
    """Return the other run's name for each tensor that it has too. An equal name comes first."""
    own, theirs = list(own), list(theirs)
    equal = {name: name for name in own if name in theirs}
    renamed: dict[str, str] = {}
    for name in theirs:
        if name not in equal:
            renamed.setdefault(_rename(name), name)
    every = {**renamed, **equal}
    return {name: every[name] for name in own if name in every}


def _rename(name: str) -> str:
    for pattern, other in RENAMES:
        if pattern.search(name):
            return pattern.sub(other, name)
    return name


def _listed(what: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return [f"{what}: {', '.join(names[:SHOWN])}{more}"]

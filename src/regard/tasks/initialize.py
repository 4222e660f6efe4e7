"""Beginning a run with the weights of another one (`train.init`), of the same task or of another.

Tensors are taken over by name and shape. Rows that stand for tokens, characters or labels are taken over by their text, so
vocabularies may differ. A row or tensor without a counterpart keeps its random values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
BOTH_WAYS = {"crf.transitions"}  # parameters whose columns stand for the same as their rows


@dataclass(frozen=True)
class Beginning:
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


def find_beginning(recipe: Recipe) -> Beginning | None:
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
    return Beginning(folder, task, codec, *folder.weights(expected))


def codec_with(task: Task[Any], codec: Any, beginning: Beginning) -> Any:
    """Return the codec with the tokenizers of the other run, if both recipes have the same settings for them."""
    same = task.recipe.tokenizer == beginning.task.recipe.tokenizer
    return task.take_over(codec, beginning.codec) if same else codec


def begin_with(model: Model, task: Task[Any], codec: Any, beginning: Beginning) -> str:
    """Copy the weights that fit into the model, and return a sentence about what was copied."""
    weights = _renamed(beginning.checkpoint.weights, model)
    own_rows, their_rows = task.rows(codec), dict(beginning.task.rows(beginning.codec))
    for name, rows in list(their_rows.items()):
        if name not in own_rows:
            their_rows.setdefault(_rename(name), rows)
    taken: list[str] = []
    vocabularies: list[str] = []
    own = model_weights(model)
    with torch.no_grad():
        for name, weight in own.items():
            given = weights.get(name)
            if given is None:
                continue
            if name in BOTH_WAYS and name in own_rows and name in their_rows:
                # Columns first, into a matrix with the rows of the other run.
                columns = torch.zeros(len(given), len(weight)).to(given)
                _copy_rows(columns.t(), own_rows[name], given.t(), their_rows[name])
                taken += [name] if _copy_rows(weight, own_rows[name], columns, their_rows[name]) else []
            elif name in own_rows and name in their_rows and weight.shape[1:] == given.shape[1:]:
                count = _copy_rows(weight, own_rows[name], given, their_rows[name])
                vocabularies += [f"{count:,} of {counted(len(weight), 'row')} of {name}"] if count < len(weight) else []
                taken += [name] if count else []
            elif weight.shape == given.shape and (name in own_rows) == (name in their_rows):
                weight.copy_(given)
                taken.append(name)
    if not taken:
        raise ConfigError(
            f"train.init={beginning.folder} has no weights of the names and shapes of this model; "
            "give it the same model.width and layers, or leave out train.init"
        )
    parts = [f"begins with {len(taken)} of {counted(len(own), 'tensor')} from {beginning.folder}"]
    parts += [f"found by their text: {', '.join(vocabularies)}"] if vocabularies else []
    parts += _listed("new", [name for name in own if name not in taken])
    parts += _listed("not used", [name for name in weights if name not in taken])
    return "; ".join(parts)


def _copy_rows(weight: Tensor, rows: Sequence[str], given: Tensor, their_rows: Sequence[str]) -> int:
    """Copy the rows of the same text, and return how many there are."""
    # Reserved tokens come first, and a word of the text may look like one.
    places = {text: place for place, text in reversed(list(enumerate(their_rows)))}
    found = [(place, places[text]) for place, text in enumerate(rows) if text in places]
    if found:
        to, which = torch.tensor(found, device=weight.device).unbind(dim=1)
        weight[to] = given.to(weight)[which]
    return len(found)


def _renamed(weights: Mapping[str, Tensor], model: Model) -> dict[str, Tensor]:
    """Return the weights under the names that the model has for them. A name that it has itself comes first."""
    own = model_weights(model).keys()
    found = {name: weight for name, weight in weights.items() if name in own}
    for name, weight in weights.items():
        if name not in own:
            other = _rename(name)
            found.setdefault(other if other in own else name, weight)
    return found


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

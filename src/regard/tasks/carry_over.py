"""Copies weights of one model into another, by their names and by the text that their rows stand for.

Where a dimension is that of a vocabulary (tokens, characters, labels), what stands for the same text is copied, so
vocabularies may differ. What has no counterpart keeps its values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.models import expected_shapes
from regard.tasks.base import Task

# What the encoder of a translation model is called in models without a decoder.
RENAMES = [
    (re.compile(r"^encoder\.(?=\d)"), "encoder.layers."),
    (re.compile(r"^encoder_norm\."), "encoder.norm."),
    (re.compile(r"^source_positions\."), "encoder.positions."),
    (re.compile(r"^(source|target)_embedding$"), "embedding"),
]

Axes = Mapping[int, Sequence[str]]  # what the entries of a dimension stand for, by the number of the dimension


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
    # Equal vocabularies are copied by place: two of their entries may have the same text.
    differ = {dim for dim, texts in axes.items() if list(texts) != list(their_axes[dim])}
    places = [_same_texts(axes[dim], their_axes[dim]) if dim in differ else None for dim in range(weight.dim())]
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

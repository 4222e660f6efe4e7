"""A packed batch as one row of int32 numbers, so that a single copy takes it to a device; floats keep their bits.

Behind the real tokens of a layout come dummy tokens, which form one sequence of their own, all at position 0; behind that
come empty sequences. Dummy tokens have an id that exists, and NO_LABEL as label and as integer extra: a loss leaves them
out, and a model that looks up an extra clamps it. Floats of dummy tokens are 0. So a task whose labels are floats gives each
label a weight, a float extra with the layout of the labels: the weight of a dummy is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import Batch
from regard.data.batch_sampler import Position
from regard.data.batch_structure import Field, fields_of
from regard.data.packed_shapes import PackedShape
from regard.data.ragged import Layout, Ragged, StaticLayout
from regard.errors import DataError


def write_row(row: NDArray[np.int32], batch: Batch, shape: PackedShape) -> None:
    """Write a CPU batch into a row."""
    places = {name: row[where] for name, where in shape.fields.items()}
    layouts: dict[int, Layout] = {}
    values = {name: one for name, one, _ in fields_of(batch)}
    for field in shape.structure.fields:
        ragged = values[field.name]
        if field.layout not in layouts:
            layouts[field.layout] = ragged.layout
            _write_layout(places, field.name, ragged.layout)
        if ragged.layout is not layouts[field.layout]:
            raise _other_structure(f"{field.name} has a layout of its own")
        _write_values(places[field.name], ragged, field)
    places["num_tokens"][0] = batch.num_tokens


def _write_layout(places: dict[str, NDArray[np.int32]], name: str, layout: Layout) -> None:
    """Write a layout, and a sequence of dummy tokens behind its own."""
    positions, sentences, offsets = (places[f"{name} {part}"] for part in ("positions", "sentences", "offsets"))
    real = layout.total
    if real > len(positions) or layout.num_sentences >= len(offsets) - 1:
        raise _other_structure(f"{name} does not fit")
    positions[:real], positions[real:] = layout.positions.numpy(), 0
    sentences[:real], sentences[real:] = layout.sentences.numpy(), layout.num_sentences
    offsets[: layout.num_sentences + 1] = layout.offsets.numpy()
    offsets[layout.num_sentences + 1 :] = len(positions)


def _other_structure(what: str) -> DataError:
    return DataError(f"a batch is not made like those of the first epoch: {what}; set train.kernels=false")


def _write_values(place: NDArray[np.int32], ragged: Ragged, field: Field) -> None:
    flat = ragged.values.reshape(-1)
    numbers = flat.float().numpy().view(np.int32) if field.kind == "float" else flat.numpy()
    place[: len(numbers)], place[len(numbers) :] = numbers, field.dummy


def unpack(row: Tensor, shape: PackedShape, num_tokens: int) -> Batch:
    """Return the batch that a row holds, as views of it."""
    places = {name: row[where] for name, where in shape.fields.items()}
    layouts = [
        StaticLayout(*(places[f"{name} {part}"] for part in ("positions", "sentences", "offsets")), longest=longest)
        for name, longest in zip(shape.names, shape.longest, strict=True)
    ]
    fields = {
        field.name: _read_values(places[field.name], layouts[field.layout], field) for field in shape.structure.fields
    }
    extras = {field.name: fields[field.name] for field in shape.structure.fields if field.extra}
    return Batch(fields["source"], fields.get("target"), fields["labels"], num_tokens, extras)


def _read_values(place: Tensor, layout: StaticLayout, field: Field) -> Ragged:
    if field.kind == "float":
        place = place.view(torch.float32)
    elif field.kind == "bool":
        place = place != 0
    return Ragged(place.view(layout.total, *field.width), layout)


@dataclass(frozen=True)
class PackedBatch:
    """A batch as one row, on any device."""

    row: Tensor
    shape: PackedShape
    num_tokens: int

    def as_lists(self) -> dict[str, list[list[int]]]:
        """Return the ids of each sentence, dummy tokens among them, for a person to look at."""
        return self.unpack().as_lists()

    def unpack(self) -> Batch:
        """Return the batch as views of the row."""
        return unpack(self.row, self.shape, self.num_tokens)


@dataclass(frozen=True)
class PackedRows:
    """Rows of many batches, [rows, numbers of the longest], and the position after each batch."""

    rows: Tensor
    shapes: list[PackedShape]
    tokens: list[int]  # labels that count
    positions: list[Position]

    def batches(self) -> Iterator[tuple[PackedBatch, Position]]:
        """Yield each batch, with the position after it."""
        for row, shape, tokens, after in zip(self.rows, self.shapes, self.tokens, self.positions, strict=True):
            yield PackedBatch(row[: shape.numbers], shape, tokens), after


def pack(batch: Batch, shape: PackedShape) -> PackedBatch:
    """Return a CPU batch in this shape."""
    row = np.zeros(shape.numbers, dtype=np.int32)
    write_row(row, batch, shape)
    return PackedBatch(torch.from_numpy(row), shape, batch.num_tokens)


def largest_rectangle(shapes: Sequence[PackedShape], probe: Callable[[int], Batch], *, times: int) -> Batch:
    """Return a batch of `times` the shape with the largest rectangle; few of its tokens are real.

    `probe(length)` makes a batch of one example of this length.
    """

    def slots(shape: PackedShape) -> int:
        layouts = zip(shape.structure.layouts, shape.longest, strict=True)
        return sum(shape.size(layout.sequences) * longest for layout, longest in layouts)

    one = max(shapes, key=slots)
    structure = one.structure
    # The rectangle does not depend on it, and one of a single token fits every layout.
    batch = probe(1)
    shape = replace(one.times(times), structure=structure.only([name for name, _, _ in fields_of(batch)]))
    return unpack(pack(batch, shape).row, shape, shape.tokens("labels"))

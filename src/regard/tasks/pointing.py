"""Pointing: the output is a sequence of positions of the input.

An example is a line of elements, split at spaces, and a line of their positions, counted from 0. Elements are numbers
("0.25"), points ("0.25,0.5"), or words, which the recipe's tokenizer must not split.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray

from regard.config import Recipe, SearchOptions
from regard.data.batch import Batch, gather_rows, shift_right
from regard.data.columns import Column, Columns, Dataset, Indices
from regard.data.ragged import Layout, Ragged
from regard.errors import DataError
from regard.explain.attention import Attention, AttentionWeights, Axis
from regard.explain.pictures import Picture
from regard.explain.plane import draw_plane
from regard.explain.recorded import recorded_attentions
from regard.explain.trace import Trace, TraceOptions
from regard.metrics.plane import KINDS, TRIANGLES
from regard.models.base import Model
from regard.models.pointer import END, FEWEST, PointingModel
from regard.nn.attention_log import capture_attention
from regard.storage.folder import Folder
from regard.tasks.base import Task
from regard.tasks.corpus import TrainingData
from regard.tasks.predictor import SearchPredictor, Warn, ignore
from regard.tasks.word_codec import every_token, load_tokenizer, save_tokenizer, tokenizer_of
from regard.text.corpus import Pair
from regard.text.elements import parse_elements, parse_positions
from regard.text.plane import MOST_POINTS, right_answer
from regard.text.tokenizer import Tokenizer, fit_input_tokenizer
from regard.training.events import Listener

ELEMENTS = "elements.json"
MOST_NUMBERS = 1024  # per element
MOST_ELEMENTS = 2**31  # per line
BLOCK = 4096  # examples that are parsed together
# Positions of a triangulation, which has at most 2 n - 5 triangles. Search may find as many for any input.
LONGEST_TRIANGULATION = 3 * (2 * MOST_POINTS["delaunay"] - 5)
PROBLEMS = {"hull": "hull", "tour": "tour", "triangles": "delaunay"}  # by `evaluate.positions`


class _SavedElements(msgspec.Struct):
    """elements.json"""

    width: Annotated[int, Meta(ge=0, le=MOST_NUMBERS)]  # numbers per element; 0: elements are words


@dataclass(frozen=True)
class ElementCodec:
    """How elements become numbers: as they are, `width` each, or through a tokenizer."""

    width: int
    tokenizer: Tokenizer | None

    def save(self, folder: Folder) -> None:
        folder.save_json(ELEMENTS, {"width": self.width})
        if self.tokenizer is not None:
            save_tokenizer(self.tokenizer, folder)

    def encode(self, text: str) -> NDArray[np.generic]:
        """Return the elements of a line: ids, [length], or numbers, [length, width]."""
        elements = text.split()
        if self.tokenizer is not None:
            ids = [self.tokenizer.encode(element) for element in elements]
            if any(len(one) != 1 for one in ids):
                raise DataError("an element is split into several tokens; set tokenizer.kind=word")
            return np.array([one[0] for one in ids], dtype=np.int32)
        rows = [numbers_of(element) for element in elements]
        if any(row is None or len(row) != self.width for row in rows):
            raise DataError(f"{text[:80]!r} is not a line of elements of {self.width} numbers each, as in 0.25,0.5")
        with np.errstate(over="ignore"):
            numbers = np.array(rows, dtype=np.float32).reshape(len(rows), self.width)
        if not np.isfinite(numbers).all():
            raise DataError(f"{text[:80]!r} has a number that is too large for float32; scale the numbers")
        return numbers


def numbers_of(element: str) -> list[float] | None:
    """Return the numbers of an element, or None if it is a word."""
    try:
        numbers = [float(part) for part in element.split(",")]
    except ValueError:
        return None
    return numbers if all(map(math.isfinite, numbers)) else None


class PointingTask(Task[ElementCodec]):
    """Elements in, positions out."""

    name = "pointing"
    searches = True
    added = (0, 1)

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self.compares = KINDS[recipe.evaluate.positions]

    def fit(self, train: TrainingData) -> ElementCodec:
        pairs, config = train.examples(), self.recipe.tokenizer
        first = next((element for pair in pairs for element in pair.source.split()), "")
        numbers = numbers_of(first)
        if numbers is not None:
            return ElementCodec(len(numbers), None)
        return ElementCodec(0, fit_input_tokenizer([pair.source for pair in pairs], config))

    def load_codec(self, folder: Folder) -> ElementCodec:
        width = folder.load_struct(ELEMENTS, _SavedElements).width
        return ElementCodec(width, None if width else load_tokenizer(folder))

    def sizes(self, codec: ElementCodec) -> dict[str, int]:
        return {"input_width": codec.width} if codec.tokenizer is None else {"source_size": codec.tokenizer.size}

    def vocabularies(self, codec: ElementCodec) -> dict[str, Sequence[str]]:
        return {} if codec.tokenizer is None else {"source_size": every_token(codec.tokenizer)}

    def take_over(self, codec: ElementCodec, other: Any) -> ElementCodec:
        tokenizer = None if codec.tokenizer is None else tokenizer_of(other)
        return codec if tokenizer is None else replace(codec, tokenizer=tokenizer)

    def encode(self, examples: Sequence[Pair], codec: ElementCodec) -> Columns:
        blocks = range(0, len(examples), BLOCK)
        parts = [self._encode_block(examples[first : first + BLOCK], codec, first) for first in blocks]
        columns = {name: Column.join([part[at] for part in parts]) for at, name in enumerate(("source", "labels"))}
        return Columns(columns, ("source", "labels"))

    def _encode_block(self, examples: Sequence[Pair], codec: ElementCodec, before: int) -> tuple[Column, Column]:
        """Return the elements and the labels of some examples, of which there are `before` others in front."""
        elements = parse_elements([pair.source for pair in examples], codec.width) if codec.width else None
        positions = parse_positions([pair.target for pair in examples]) if elements is not None else None
        if elements is not None and positions is not None:
            source, labels = Column(*elements), Column(*positions)
            if (positions[0] < source.lengths.repeat(labels.lengths)).all():
                return source, Column((positions[0] + 1).astype(np.int32), labels.offsets)
        return self._encode_one_by_one(examples, codec, before)

    def _encode_one_by_one(self, examples: Sequence[Pair], codec: ElementCodec, before: int) -> tuple[Column, Column]:
        """Return the same for words, or for lines of another form; errors name the example."""
        sources, labels = [], []
        for number, pair in enumerate(examples, start=before + 1):
            elements = codec.encode(pair.source)
            positions = positions_of(pair.target, len(elements), where=f"example {number}")
            sources.append(elements)
            labels.append(np.array(positions, dtype=np.int32) + 1)
        return Column.from_arrays(sources), Column.from_arrays(labels)

    def check(self, dataset: Dataset, model: Model, listen: Listener) -> None:
        outputs = getattr(model, "outputs", "any")
        if outputs == "any" or not isinstance(dataset, Columns):
            return
        source, labels = dataset["source"].lengths, dataset["labels"]
        rows = np.arange(len(source)).repeat(labels.lengths)
        distinct = np.bincount(
            np.unique(rows * (MOST_ELEMENTS + 1) + labels.values) // (MOST_ELEMENTS + 1), minlength=len(source)
        )
        least = source if outputs == "permutation" else np.minimum(source, FEWEST[outputs])
        wrong = np.flatnonzero((distinct < labels.lengths) | (labels.lengths < least))
        if len(wrong):
            raise DataError(
                f"the target of example {wrong[0] + 1} is not a valid output for model.outputs={outputs}; correct it, or "
                "set model.outputs=any"
            )

    def collate(self, columns: Columns, rows: Indices) -> Batch:
        source, labels = gather_rows(columns["source"], rows), gather_rows(columns["labels"], rows, end=END)
        return Batch(source, shift_right(labels, END), labels, labels.layout.total)

    def probe(self, codec: ElementCodec, length: int, count: int) -> Batch:
        layout, written = Layout([length] * count), Layout([length + 1] * count)
        numbers = torch.zeros(layout.total, codec.width) if codec.width else torch.zeros(layout.total).long()
        labels = Ragged(torch.ones(written.total, dtype=torch.int64), written)
        return Batch(Ragged(numbers, layout), shift_right(labels, END), labels, written.total)

    def predictor(
        self, model: Model, codec: ElementCodec, *, greedy: bool = False, warn: Warn = ignore
    ) -> PositionPredictor:
        options = self.search_options(greedy=greedy)
        if self.compares == TRIANGLES:
            options = options.replace(max_extra=max(options.max_extra, LONGEST_TRIANGULATION))
        return PositionPredictor(model, codec, options, warn)

    @torch.inference_mode()
    def trace(self, predictor: PositionPredictor, text: str, options: TraceOptions) -> Trace:
        model, elements = predictor.model, predictor.encode_one(text)
        (output,) = predictor.outputs([elements], predictor.options.replace(beam=options.beam))
        source = predictor.source([elements])
        positions = [int(one) for one in output.split()]
        labels = Ragged.from_lists([[*(one + 1 for one in positions), END]], source.layout.device)
        with capture_attention() as log:
            weights = model.decode(shift_right(labels, END), model.encode(source)).float().softmax(dim=-1)
        written = [*(f"{elements[one]} ({one})" for one in positions), "end"]
        axes = {
            "source": Axis.from_tokens("input", elements),
            "target": Axis.from_tokens("output", written),
            "read": Axis.from_tokens("decoder input", ["start", *written[:-1]]),
        }
        found = recorded_attentions(model, log, axes)
        found.append(Attention("pointer", 1, "target", "source", weights[:, 1:].cpu().numpy()[None]))
        pictures = self._pictures(predictor, text, positions, found[-1].weights[0])
        probabilities = [round(one, 6) for one in weights.gather(1, labels.values[:, None])[:, 0].tolist()]
        return Trace(options.name, axes, found, probabilities, [[] for _ in written], pictures)

    def _pictures(
        self, predictor: PositionPredictor, text: str, positions: list[int], weights: AttentionWeights
    ) -> tuple[Picture, ...]:
        """Return a drawing of points in the plane, with the right answer where it is known how to find it."""
        kind = self.recipe.evaluate.positions
        if kind == "sequence" or predictor.codec.width != 2:
            return ()
        points = predictor.codec.encode(text).astype(np.float64)
        expected = right_answer(PROBLEMS[kind], points)
        draw = partial(draw_plane, points=points, found=positions, expected=expected, weights=weights)
        return (Picture("plane", partial(draw, triangles=kind == "triangles")),)


def positions_of(text: str, length: int, *, where: str) -> list[int]:
    """Return the positions in a line. Raise DataError unless each is one of `length` elements."""
    parts = text.split()
    if not all(part.isascii() and part.isdigit() and len(part) <= 9 and int(part) < length for part in parts):
        raise DataError(f"{where} has positions {text[:80]!r}; they must be numbers from 0 to {length - 1}")
    return [int(part) for part in parts]


class PositionPredictor(SearchPredictor[PointingModel, ElementCodec, list[str]]):
    """A pointer network in use: the positions for each input, separated by spaces."""

    needs = PointingModel
    counts = "elements"
    if_empty = "the input is empty; give one with elements in it"
    added = 1  # the end of the output needs a position of the decoder too

    def encode(self, text: str) -> list[str]:
        return text.split()

    def cut(self, one: list[str]) -> list[str]:
        return one[: self.limit]

    def source(self, batch: Sequence[list[str]]) -> Ragged:
        arrays = [self.codec.encode(" ".join(elements)) for elements in batch]
        return gather_rows(Column.from_arrays(arrays), np.arange(len(arrays))).to(self.device)

    def text(self, ids: Sequence[int]) -> str:
        return " ".join(str(one - 1) for one in ids)

    def each(self, encoded: Sequence[list[str]], options: SearchOptions) -> Iterator[tuple[int, str]]:
        # Search takes the last element for EOS, and allows one output less than there are elements.
        most = options.BOUNDS["max_extra"][1]
        yield from super().each(encoded, options.replace(max_extra=min(options.max_extra + 1, most)))

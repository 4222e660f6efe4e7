"""Sequences of binary vectors: at steps written as a dot a vector of bits is output, at the others one is read.

An example is a line of input vectors and dots, "0110 1010 1000:3 . .", and a line of output vectors, one per dot. A number
behind a vector is the value of a channel of its own. At a dot the input is zero. One line is one sequence; all vectors of a
side have as many bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray

from regard.config import SearchOptions
from regard.data.batch import NO_LABEL, Batch, gather_rows, num_labels
from regard.data.columns import Column, Columns, Indices
from regard.data.ragged import Layout, Ragged
from regard.errors import DataError, DecodeError
from regard.explain.attention import Attention, Axis
from regard.explain.ntm_memory import MemoryRecord, memory_pictures
from regard.explain.recorded import recorded_attentions
from regard.explain.trace import Alternative, Trace, TraceOptions
from regard.messages import counted
from regard.metrics import BITS
from regard.models.base import Model
from regard.models.binary import MOST_BITS, MOST_NUMBER, BinaryModel
from regard.models.ntm import MemoryStep
from regard.nn.attention_log import capture_attention
from regard.storage.folder import Folder
from regard.tasks.base import Task
from regard.tasks.corpus import TrainingData
from regard.tasks.predictor import BatchPredictor, Warn, ignore
from regard.text.corpus import Pair

VECTORS = "vectors.json"
WANTED = -2  # a dot, among parsed vectors
DOT, SPACE, NEWLINE, ZERO, COLON = (ord(one) for one in ". \n0:")
_DIGITS = len(str(MOST_NUMBER))


class BinaryCodec(msgspec.Struct, frozen=True):
    """The number of bits of input and output vectors, and the largest number behind a vector in training."""

    input_width: Annotated[int, Meta(ge=1, le=MOST_BITS)]
    output_width: Annotated[int, Meta(ge=1, le=MOST_BITS)]
    largest_number: Annotated[int, Meta(ge=0, le=MOST_NUMBER)]

    def save(self, folder: Folder) -> None:
        folder.save_json(VECTORS, msgspec.to_builtins(self))


def parse(lines: Sequence[str], width: int) -> tuple[NDArray[np.int32], Indices]:
    """Return the vectors of all lines as integers, end to end, and the number of vectors of each line.

    A dot is WANTED. A number behind a vector is above its bits. Raise DataError for anything else. There is no Python loop
    over vectors, because training on fresh examples parses as fast as it trains.
    """
    if not all(map(str.isascii, lines)) or any("\n" in line for line in lines):
        raise _not_vectors(lines, width)
    characters = np.frombuffer(("\n".join(lines) + "\n").encode("ascii"), dtype=np.uint8)
    between = (characters == SPACE) | (characters == NEWLINE)
    # A token begins after a separator, and ends before one.
    before = np.concatenate([[True], between[:-1]])
    starts = np.flatnonzero(before & ~between)
    ends = np.flatnonzero(between & ~before)
    lengths = np.diff(np.searchsorted(starts, np.flatnonzero(characters == NEWLINE)), prepend=0)
    if not len(starts):
        return np.zeros(0, dtype=np.int32), lengths
    sizes = ends - starts
    dots = (sizes == 1) & (characters[starts] == DOT)
    numbered = sizes > width
    vectors = starts[~dots]
    fits = (sizes[~dots] == width) | ((sizes[~dots] >= width + 2) & (sizes[~dots] <= width + 1 + _DIGITS))
    if not fits.all():
        raise _not_vectors(lines, width)
    bits = characters[vectors[:, None] + np.arange(width)] - ZERO
    if (bits > 1).any():
        raise _not_vectors(lines, width)
    values = np.full(len(starts), WANTED, dtype=np.int32)
    values[~dots] = bits.astype(np.int32) @ (1 << np.arange(width - 1, -1, -1, dtype=np.int32))
    for place in np.flatnonzero(numbered & ~dots).tolist():
        colon, digits = starts[place] + width, characters[starts[place] + width + 1 : ends[place]]
        if characters[colon] != COLON or ((digits < ZERO) | (digits > ZERO + 9)).any():
            raise _not_vectors(lines, width)
        number = int(digits.tobytes())
        if number > MOST_NUMBER:
            raise DataError(f"a vector has the number {number:,}; numbers can be at most {MOST_NUMBER:,}")
        values[place] |= number << MOST_BITS
    return values, lengths


def _not_vectors(lines: Sequence[str], width: int) -> DataError:
    """Return the error that names the first token that is neither a vector nor a dot."""
    for line in lines:
        for token in line.split(" "):
            bits, colon, number = token.partition(":")
            right = len(bits) == width and not bits.strip("01") and (number.isdecimal() or not colon)
            if token not in ("", ".") and not (right and number.isascii() and len(number) <= _DIGITS):
                return DataError(
                    f"{token[:40]!r} is neither a vector of {counted(width, 'bit')} nor a dot, as in 0110 or ."
                )
    return DataError(f"lines must hold vectors of {counted(width, 'bit')} and dots, separated by spaces")


def first_width(lines: Sequence[str], what: str) -> int:
    """Return the number of bits of the first vector."""
    first = next((token for line in lines for token in line.split() if token != "."), "")
    width = len(first.partition(":")[0])
    if not 1 <= width <= MOST_BITS:
        raise DataError(f"the first {what} vector is {first[:40]!r}; vectors have 1 to {MOST_BITS} bits, as in 0110")
    return width


class BinarySequencesTask(Task[BinaryCodec]):
    """Binary vectors in, binary vectors out."""

    name = "binary-sequences"
    added = (0,)
    compares = BITS

    def fit(self, train: TrainingData) -> BinaryCodec:
        pairs = train.examples()
        sources = [pair.source for pair in pairs]
        width = first_width(sources, "input")
        values, _ = parse(sources, width)
        largest = int(values.max(initial=0)) >> MOST_BITS
        return BinaryCodec(width, first_width([pair.target for pair in pairs], "output"), largest)

    def load_codec(self, folder: Folder) -> BinaryCodec:
        return folder.load_struct(VECTORS, BinaryCodec)

    def sizes(self, codec: BinaryCodec) -> dict[str, int]:
        return msgspec.structs.asdict(codec)

    def vocabularies(self, codec: BinaryCodec) -> dict[str, Sequence[str]]:
        return {}

    def take_over(self, codec: BinaryCodec, other: Any) -> BinaryCodec:
        """The other codec serves if it has the same widths and numbers as large."""
        if not isinstance(other, BinaryCodec) or other.largest_number < codec.largest_number:
            return codec
        return other if (other.input_width, other.output_width) == (codec.input_width, codec.output_width) else codec

    def encode(self, examples: Sequence[Pair], codec: BinaryCodec) -> Columns:
        source, lengths = parse([pair.source for pair in examples], codec.input_width)
        target, written = parse([pair.target for pair in examples], codec.output_width)
        wanted = source == WANTED
        offsets = np.concatenate([[0], lengths.cumsum()])
        dots = np.diff(np.concatenate([[0], wanted.cumsum()])[offsets])
        if (target < 0).any() or (target >> MOST_BITS).any():
            raise DataError(
                "an output has a dot or a number; outputs are vectors of bits alone, one per dot of the input"
            )
        if (dots != written).any():
            number = int((dots != written).argmax())
            raise DataError(
                f"example {number + 1} has {counted(int(dots[number]), 'dot')} but "
                f"{counted(int(written[number]), 'output vector')}; each dot needs one"
            )
        if (lengths == 0).any():
            raise DataError(f"example {int((lengths == 0).argmax()) + 1} is empty; it needs vectors and dots")
        labels = np.full(len(source), NO_LABEL, dtype=np.int32)
        labels[wanted] = target
        columns = {
            "source": Column(np.where(wanted, 0, source).astype(np.int32), offsets),
            "labels": Column(labels, offsets),
        }
        return Columns(columns, ("source",))

    def collate(self, columns: Columns, rows: Indices) -> Batch:
        source, labels = gather_rows(columns["source"], rows), gather_rows(columns["labels"], rows)
        labels = Ragged(labels.values, source.layout)
        return Batch(source, None, labels, num_labels(labels))

    def probe(self, codec: BinaryCodec, length: int, count: int) -> Batch:
        layout = Layout([length] * count)
        zeros = torch.zeros(layout.total, dtype=torch.int64)
        return Batch(Ragged(zeros, layout), None, Ragged(zeros, layout), layout.total)

    def predictor(
        self, model: Model, codec: BinaryCodec, *, greedy: bool = False, warn: Warn = ignore
    ) -> BinaryPredictor:
        return BinaryPredictor(model, codec, self.recipe.decode, warn)

    @torch.inference_mode()
    def trace(self, predictor: BinaryPredictor, text: str, options: TraceOptions) -> Trace:
        model, tokens = predictor.model, predictor.encode_one(text)
        if "." not in tokens:
            raise DecodeError(predictor.if_empty)
        source, wanted = predictor.source([tokens])
        with capture_attention() as log:
            logits = model.logits(source)
        steps: list[MemoryStep] = log.memory_steps
        probabilities = logits.values.float().sigmoid()
        outputs = predictor.texts(logits.values)
        axes = {
            "source": Axis.from_tokens("input", tokens),
            "target": Axis.from_tokens("output", [outputs[place] for place in np.flatnonzero(wanted)]),
        }
        found = recorded_attentions(model, log, axes)
        if steps:
            locations = steps[0].read_weights.size(-1)
            axes["memory"] = Axis.from_tokens("memory", [str(place) for place in range(locations)])
            for kind in ("read", "write"):
                weights = torch.cat([getattr(step, f"{kind}_weights") for step in steps]).transpose(0, 1)
                found.append(Attention(kind, 1, "source", "memory", weights.cpu().numpy()))
        record = MemoryRecord(
            model.channels(source.values).cpu().numpy(),
            probabilities.cpu().numpy(),
            wanted,
            {
                name: torch.cat([getattr(step, name).flatten(1) for step in steps]).cpu().numpy()
                for name in MemoryRecord.PARTS
            }
            if steps
            else {},
        )
        sure = torch.maximum(probabilities, 1 - probabilities)[torch.from_numpy(wanted)].prod(dim=-1)
        nothing: list[list[Alternative]] = [[] for _ in axes["target"].tokens]
        return Trace(
            options.name, axes, found, [round(one, 6) for one in sure.tolist()], nothing, memory_pictures(record)
        )


class BinaryPredictor(BatchPredictor[BinaryModel, BinaryCodec, list[str]]):
    """A model of binary sequences in use: the vectors that each input asks for, separated by spaces."""

    needs = BinaryModel
    counts = "vectors and dots"
    if_empty = "the input has no dot, so nothing is output; add a dot for each vector that is wanted"

    def encode(self, text: str) -> list[str]:
        return text.split()

    def cut(self, one: list[str]) -> list[str]:
        return one[: self.limit]

    def source(self, batch: Sequence[list[str]]) -> tuple[Ragged, NDArray[np.bool_]]:
        """Return the input of all steps, and at which of them an output is wanted."""
        values, lengths = parse([" ".join(tokens) for tokens in batch], self.codec.input_width)
        wanted = values == WANTED
        ids = torch.from_numpy(np.where(wanted, 0, values).astype(np.int64))
        return Ragged(ids, Layout(lengths.tolist())).to(self.device), wanted

    def texts(self, logits: torch.Tensor) -> list[str]:
        """Return the bits that are more likely 1 than 0, as text: one per step."""
        characters = (logits > 0).to(torch.uint8).cpu().numpy() + np.uint8(ZERO)
        text, width = characters.tobytes().decode("ascii"), self.codec.output_width
        return [text[begin : begin + width] for begin in range(0, len(text), width)]

    def outputs(self, batch: Sequence[list[str]], options: SearchOptions) -> list[str]:
        source, wanted = self.source(batch)
        found, offsets = self.texts(self.model.logits(source).values), [0, *accumulate(source.layout.lengths)]
        return [
            " ".join(found[place] for place in np.flatnonzero(wanted[begin:end]) + begin)
            for begin, end in pairwise(offsets)
        ]

"""Captioning: an image in, a line of text out.

An example is an image and its caption. An image is a data URI of a PNG or JPEG file (`text.images`). In the data files
of a recipe it may also be the name of such a file, below a data folder. All images of a recipe have the same size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
from msgspec import Meta

from regard.config import SearchOptions
from regard.data.batch import Batch, gather_rows, shift_right
from regard.data.columns import Column, Columns, Indices
from regard.data.ragged import Layout, Ragged
from regard.decoding.search import search
from regard.errors import ConfigError, DataError, DecodeError
from regard.explain.attention import Axis
from regard.explain.pictures import Picture, draw_attention
from regard.explain.recorded import alternatives_of, record_forced, recorded_attentions
from regard.explain.trace import Trace, TraceOptions, soft_alignment
from regard.metrics import TEXT
from regard.models import model_config
from regard.models.base import Model, Seq2Seq
from regard.models.captioner import CaptionerConfig
from regard.storage.folder import Folder
from regard.tasks.base import Task
from regard.tasks.corpus import Corpus, TextPairs, TrainingData
from regard.tasks.predictor import SearchPredictor, Warn, ignore
from regard.tasks.word_codec import every_token, load_tokenizer, save_tokenizer, tokenizer_of
from regard.text.corpus import Pair
from regard.text.images import MAX_SIDE, Pixels, patches_of, read_file, read_image, with_files
from regard.text.inputs import as_texts
from regard.text.symbols import BOS, EOS, RESERVED
from regard.text.tokenizer import Tokenizer, fit_tokenizer

IMAGE_FILE = "picture.json"  # as the first runs call it


class _SavedSize(msgspec.Struct):
    """picture.json"""

    height: Annotated[int, Meta(ge=1, le=MAX_SIDE)]
    width: Annotated[int, Meta(ge=1, le=MAX_SIDE)]


@dataclass(frozen=True)
class CaptionCodec:
    """The size of all images, in pixels, and the tokenizer of their captions."""

    height: int
    width: int
    tokenizer: Tokenizer

    def save(self, folder: Folder) -> None:
        folder.save_json(IMAGE_FILE, {"height": self.height, "width": self.width})
        save_tokenizer(self.tokenizer, folder)

    def read(self, line: str) -> Pixels:
        """Return the pixels of an image: [H, W, 3]. Raise DataError if it has another size."""
        pixels = read_image(line)
        if pixels.shape[:2] != (self.height, self.width):
            size = f"{pixels.shape[0]} x {pixels.shape[1]}"
            raise DataError(f"an image has {size} pixels; this model reads {self.height} x {self.width}, so scale it")
        return pixels


class CaptioningTask(Task[CaptionCodec]):
    """Images in, text out."""

    name = "captioning"
    searches = True
    added = (0, 1)
    compares = TEXT

    @property
    def patch(self) -> int:
        """Pixels of a patch's side."""
        config = model_config(self.recipe.model)[1]
        if not isinstance(config, CaptionerConfig):
            raise ConfigError("captioning needs a model whose options are a CaptionerConfig; set model.kind=captioner")
        return config.patch

    # Data

    def read(self, folders: list[Path]) -> Corpus:
        corpus = super().read(folders)
        train = corpus.train
        if isinstance(train, TextPairs):
            train = replace(train, pairs=with_files(train.pairs, folders))
        return replace(corpus, train=train, valid=with_files(corpus.valid, folders))

    def with_files(self, examples: Sequence[Pair], folders: list[Path]) -> list[Pair]:
        return with_files(examples, folders)

    def fit(self, train: TrainingData) -> CaptionCodec:
        pairs, config = train.examples(), self.recipe.tokenizer
        if config.source is not None:
            raise ConfigError("images are not tokenized; remove [tokenizer.source]")
        tokenizer = fit_tokenizer([pair.target for pair in pairs], config.side("target"))
        height, width, _ = read_image(pairs[0].source).shape
        return CaptionCodec(height, width, tokenizer)

    def load_codec(self, folder: Folder) -> CaptionCodec:
        size = folder.load_struct(IMAGE_FILE, _SavedSize)
        return CaptionCodec(size.height, size.width, load_tokenizer(folder))

    def sizes(self, codec: CaptionCodec) -> dict[str, int]:
        return {"image_height": codec.height, "image_width": codec.width, "target_size": codec.tokenizer.size}

    def vocabularies(self, codec: CaptionCodec) -> dict[str, Sequence[str]]:
        return {"target_size": every_token(codec.tokenizer)}

    def take_over(self, codec: CaptionCodec, other: Any) -> CaptionCodec:
        return replace(codec, tokenizer=tokenizer_of(other, target=True) or codec.tokenizer)

    def encode(self, examples: Sequence[Pair], codec: CaptionCodec) -> Columns:
        target = codec.tokenizer.encode_all([pair.target for pair in examples])
        per_image = codec.height * codec.width // self.patch**2
        # Bytes: an epoch of images is kept in memory, and a batch is converted to numbers when it is made.
        patches = np.empty((len(examples) * per_image, 3 * self.patch**2), dtype=np.uint8)
        for number, pair in enumerate(examples):
            try:
                pixels = codec.read(pair.source)
            except DataError as error:
                raise DataError(f"example {number + 1}: {error}") from error
            patches[number * per_image : (number + 1) * per_image] = patches_of(pixels, self.patch)
        source = Column(patches, np.arange(len(examples) + 1, dtype=np.int64) * per_image)
        return Columns({"source": source, "target": Column.from_lists(target)}, ("source", "target"))

    def collate(self, columns: Columns, rows: Indices) -> Batch:
        column, labels = columns["source"], gather_rows(columns["target"], rows, end=EOS)
        source = Ragged(as_numbers(column.gather(rows)), Layout(column.lengths_of(rows).tolist()))
        return Batch(source, shift_right(labels, BOS), labels, labels.layout.total)

    def probe(self, codec: CaptionCodec, length: int, count: int) -> Batch:
        patches = min(length, codec.height * codec.width // self.patch**2)
        source = torch.zeros(count * patches, 3 * self.patch**2)
        labels = Ragged.from_lists([[EOS] * (length + 1)] * count)
        return Batch(Ragged(source, Layout([patches] * count)), shift_right(labels, BOS), labels, labels.layout.total)

    # Models

    def predictor(
        self, model: Model, codec: CaptionCodec, *, greedy: bool = False, warn: Warn = ignore
    ) -> CaptionPredictor:
        return CaptionPredictor(model, codec, self.search_options(greedy=greedy), warn, patch=self.patch)

    def describe_input(self, text: str) -> str:
        return f"image ({len(text):,} characters)"

    @torch.inference_mode()
    def trace(self, predictor: CaptionPredictor, text: str, options: TraceOptions) -> Trace:
        """Return the trace of one image: a data URI, or the path of a file, which the caller of `look` may name."""
        line = text if not text.strip() or text.lower().startswith("data:") else read_file(Path(text))
        model, tokenizer, patches = predictor.model, predictor.codec.tokenizer, predictor.encode_one(line)
        source = predictor.source([patches])
        ids = [*search(model, source, options=predictor.options.replace(beam=options.beam))[0][0].ids, EOS]
        log, logp = record_forced(model, source, ids)
        pixels = predictor.codec.read(line)
        rows, columns = len(pixels) // predictor.patch, pixels.shape[1] // predictor.patch
        target = Axis.from_ids("caption", tokenizer, ids)
        read_tokens = [RESERVED[BOS], *target.tokens[:-1]]
        axes = {
            "source": Axis.from_tokens(
                "patch", [f"{one + 1},{two + 1}" for one in range(rows) for two in range(columns)]
            ),
            "target": target,
            "read": Axis("decoder input", target.text, [BOS, *ids[:-1]], read_tokens, target.words),
        }
        found = alternatives_of(logp.exp(), ids, options.alternatives, lambda id: tokenizer.tokens([id])[0])
        trace = Trace(options.name, axes, recorded_attentions(model, log, axes), *found)
        weights = soft_alignment(trace).reshape(len(ids), rows, columns)
        picture = Picture(
            "attention to the image", lambda plt: draw_attention(plt, pixels, target.tokens[:-1], weights[:-1])
        )
        return replace(trace, pictures=(picture,))


def as_numbers(patches: Any) -> torch.Tensor:
    """Return bytes as numbers from 0 to 1. A dark background is then near zero, and does not drown what differs."""
    return torch.from_numpy(patches).float().div_(255.0)


class CaptionPredictor(SearchPredictor[Seq2Seq, CaptionCodec, Pixels]):
    """A captioner in use: the caption of each image, given as a data URI."""

    needs = Seq2Seq  # on a GPU it is a captioner whose steps are captured as a CUDA graph
    counts = "patches"
    if_empty = "the input is empty; give an image as data:image/png;base64,... or the path of a file"

    def __init__(self, model: Model, codec: CaptionCodec, options: SearchOptions, warn: Warn, *, patch: int) -> None:
        super().__init__(model, codec, options, warn)
        self.patch = patch
        # All images have the same size, so none is cut.
        self.limit = codec.height * codec.width // patch**2

    def encode(self, text: str) -> Pixels:
        """Return the patches of an image, as bytes."""
        if not text.strip():
            return np.zeros((0, 3 * self.patch**2), dtype=np.uint8)
        return patches_of(self.codec.read(text), self.patch)

    def cut(self, one: Pixels) -> Pixels:
        return one[: self.limit]

    def encode_all(self, inputs: Sequence[str], *, call: str) -> list[Pixels]:
        return [self._encode_line(number, line) for number, line in enumerate(as_texts(inputs, call=call), start=1)]

    def _encode_line(self, number: int, line: str) -> Pixels:
        try:
            return self.encode(line)
        except DataError as error:
            raise DecodeError(f"input {number}: {error}") from error

    def source(self, batch: Sequence[Pixels]) -> Ragged:
        return Ragged(as_numbers(np.concatenate(batch)), Layout([len(one) for one in batch])).to(self.device)

    def text(self, ids: Sequence[int]) -> str:
        return self.codec.tokenizer.decode(ids)

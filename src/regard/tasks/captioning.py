"""Captioning: a picture in, a line of text out.

An example is a picture and its caption. A picture is a data URI of a PNG or JPEG file (`text.pictures`). In the data files
of a recipe it may also be the name of such a file, below a data folder. All pictures of a recipe have the same size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
from msgspec import Meta

from regard.config import SearchOptions
from regard.data.batch import Batch, gather_rows, shift_right
from regard.data.batch_sampler import cut_to_budget
from regard.data.columns import Column, Columns, Indices
from regard.data.ragged import Layout, Ragged
from regard.decoding.search import search_all
from regard.errors import ConfigError, DataError, DecodeError, RegardError
from regard.explain.attention import Axis, recorded_attentions
from regard.explain.picture import draw_attention
from regard.explain.trace import Alternative, Picture, Trace, record_forced, soft_alignment
from regard.metrics import TEXT
from regard.models import model_config
from regard.models.base import Model, Seq2Seq
from regard.models.captioner import CaptionerConfig
from regard.storage.folder import Folder
from regard.tasks.base import Task
from regard.tasks.corpus import Corpus, TextPairs, TrainingData
from regard.text.corpus import Pair
from regard.text.inputs import as_texts
from regard.text.pictures import MAX_SIDE, Pixels, patches_of, read_file, read_picture, with_files
from regard.text.symbols import BOS, EOS, RESERVED
from regard.text.tokenizer import Tokenizer, Tokenizers, load_tokenizers, train_tokenizer

PICTURE = "picture.json"


class _SavedSize(msgspec.Struct):
    """picture.json"""

    height: Annotated[int, Meta(ge=1, le=MAX_SIDE)]
    width: Annotated[int, Meta(ge=1, le=MAX_SIDE)]


@dataclass(frozen=True)
class CaptionCodec:
    """The size of all pictures, in pixels, and the tokenizer of their captions."""

    height: int
    width: int
    tokenizer: Tokenizer

    def save(self, folder: Folder) -> None:
        folder.save_json(PICTURE, {"height": self.height, "width": self.width})
        Tokenizers(self.tokenizer, self.tokenizer).save(folder)

    def read(self, line: str) -> Pixels:
        """Return the pixels of a picture: [H, W, 3]. Raise DataError if it has another size."""
        pixels = read_picture(line)
        if pixels.shape[:2] != (self.height, self.width):
            size = f"{pixels.shape[0]} x {pixels.shape[1]}"
            raise DataError(f"a picture has {size} pixels; this model reads {self.height} x {self.width}, so scale it")
        return pixels


class CaptioningTask(Task[CaptionCodec]):
    """Pictures in, text out."""

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
            train = TextPairs(with_files(train.pairs, folders), train.of_epoch)
        return Corpus(train, with_files(corpus.valid, folders))

    def with_files(self, examples: Sequence[Pair], folders: list[Path]) -> list[Pair]:
        return with_files(examples, folders)

    def fit(self, train: TrainingData) -> CaptionCodec:
        pairs, config = train.examples(), self.recipe.tokenizer
        if config.source is not None:
            raise ConfigError("pictures are not tokenized; remove [tokenizer.source]")
        side = config.side("target")
        captions = [pair.target for pair in pairs]
        tokenizer = train_tokenizer(captions, kind=side.kind, size=side.size, coverage=side.coverage)
        height, width, _ = read_picture(pairs[0].source).shape
        return CaptionCodec(height, width, tokenizer)

    def load_codec(self, folder: Folder) -> CaptionCodec:
        size = folder.load_struct(PICTURE, _SavedSize)
        return CaptionCodec(size.height, size.width, load_tokenizers(folder).target)

    def sizes(self, codec: CaptionCodec) -> dict[str, int]:
        return {"picture_height": codec.height, "picture_width": codec.width, "target_size": codec.tokenizer.size}

    def rows(self, codec: CaptionCodec) -> dict[str, Sequence[str]]:
        tokens = codec.tokenizer.tokens(range(codec.tokenizer.size))
        return {"target_embedding": tokens, "output": tokens}

    def encode(self, examples: Sequence[Pair], codec: CaptionCodec) -> Columns:
        target = codec.tokenizer.encode_all([pair.target for pair in examples])
        per_picture = codec.height * codec.width // self.patch**2
        # Bytes: an epoch of pictures is kept in memory, and a batch is converted to numbers when it is made.
        patches = np.empty((len(examples) * per_picture, 3 * self.patch**2), dtype=np.uint8)
        for number, pair in enumerate(examples):
            try:
                pixels = codec.read(pair.source)
            except DataError as error:
                raise DataError(f"example {number + 1}: {error}") from error
            patches[number * per_picture : (number + 1) * per_picture] = patches_of(pixels, self.patch)
        source = Column(patches, np.arange(len(examples) + 1, dtype=np.int64) * per_picture)
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
        self,
        model: Model,
        codec: CaptionCodec,
        *,
        greedy: bool = False,
        warn: Callable[[str], None] = lambda text: None,
    ) -> CaptionPredictor:
        decode = self.recipe.decode
        return CaptionPredictor(model, codec, decode.replace(beam=1) if greedy else decode, patch=self.patch)

    def describe_input(self, text: str) -> str:
        return f"picture ({len(text):,} characters)"

    @torch.inference_mode()
    def trace(
        self, predictor: CaptionPredictor, text: str, *, name: str = "", beam: int | None = None, alternatives: int = 0
    ) -> Trace:
        """Return the trace of one picture: a data URI, or the path of a file, which the caller of `look` may name."""
        if not text.strip():
            raise DecodeError("the input is empty; give a picture as data:image/png;base64,... or the path of a file")
        line = text if text.lower().startswith("data:") else read_file(Path(text))
        model, tokenizer = predictor.model, predictor.codec.tokenizer
        pixels, source = predictor.codec.read(line), predictor.encode([line])
        best = predictor.search([source], options=predictor.options.replace(beam=beam))[0][0]
        ids = [*best, EOS]
        log, logp = record_forced(model, source, ids)
        rows, columns = len(pixels) // predictor.patch, pixels.shape[1] // predictor.patch
        target = Axis.from_ids("caption", tokenizer, ids)
        axes = {
            "source": Axis.from_tokens(
                "patch", [f"{one + 1},{two + 1}" for one in range(rows) for two in range(columns)]
            ),
            "target": target,
            "read": Axis(
                "decoder input", target.text, [BOS, *best], [RESERVED[BOS], *target.tokens[:-1]], target.words
            ),
        }
        probabilities = [round(float(logp[place, token].exp()), 6) for place, token in enumerate(ids)]
        others = _alternatives(tokenizer, ids, logp, alternatives)
        trace = Trace(name, axes, recorded_attentions(model, log, axes), probabilities, others)
        weights = soft_alignment(trace).reshape(len(ids), rows, columns)
        picture = Picture(
            "attention to the picture", lambda plt: draw_attention(plt, pixels, target.tokens[:-1], weights[:-1])
        )
        return Trace(name, axes, trace.attentions, probabilities, others, (picture,))


def as_numbers(patches: Any) -> torch.Tensor:
    """Return bytes as numbers from 0 to 1. A dark background is then near zero, and does not drown what differs."""
    return torch.from_numpy(patches).float().div_(255.0)


def _alternatives(tokenizer: Tokenizer, ids: list[int], logp: torch.Tensor, count: int) -> list[list[Alternative]]:
    """Return the likeliest other tokens at each place."""
    best = logp.topk(min(1 + count, logp.size(-1)), dim=-1)
    found = zip(ids, best.indices.tolist(), best.values.exp().tolist(), strict=True)
    return [
        [
            Alternative(token, tokenizer.tokens([token])[0], round(p, 6), "")
            for token, p in zip(tokens, ps, strict=True)
            if token != own
        ][:count]
        for own, tokens, ps in found
    ]


class CaptionPredictor:
    """A captioner in use."""

    def __init__(self, model: Model, codec: CaptionCodec, options: SearchOptions, *, patch: int) -> None:
        # On a GPU it is a captioner whose steps are captured as a CUDA graph.
        if not isinstance(model, Seq2Seq):
            raise ConfigError(f"captioning needs a model that outputs tokens, and {type(model).__name__} does not")
        self.model, self.codec, self.patch = model, codec, patch
        self.options = SearchOptions().with_given(options)

    def encode(self, lines: Sequence[str]) -> Ragged:
        """Return the patches of all pictures."""
        patches = [patches_of(self.codec.read(line), self.patch) for line in lines]
        layout = Layout([len(one) for one in patches])
        return Ragged(as_numbers(np.concatenate(patches)), layout).to(next(self.model.parameters()).device)

    def search(self, sources: Sequence[Ragged], *, options: SearchOptions) -> list[list[list[int]]]:
        """Return the ids of the best caption of each picture of each batch."""
        found: list[list[list[int]]] = [[[] for _ in range(source.layout.num_sentences)] for source in sources]
        for number, results in search_all(self.model, sources, options=options):
            for sentence, best in results:
                found[number][sentence] = list(best[0].ids)
        return found

    def predict(self, inputs: Sequence[str], *, options: SearchOptions | None = None) -> list[str]:
        """Return the caption of each picture, given as a data URI; that of an empty line is empty."""
        inputs = as_texts(inputs, call="predict()")
        options = self.options.with_given(options)
        order = np.array([number for number, line in enumerate(inputs) if line.strip()], dtype=np.int64)
        lengths = np.full(len(inputs), self.codec.height * self.codec.width // self.patch**2, dtype=np.int64)
        batches = cut_to_budget(order, (lengths,), max(1, options.tokens // options.beam))
        outputs = [""] * len(inputs)
        sources = []
        for rows in batches:
            try:
                sources.append(self.encode([inputs[row] for row in rows]))
            except RegardError as error:
                raise DecodeError(f"among inputs {rows[0] + 1} to {rows[-1] + 1}: {error}") from error
        for rows, found in zip(batches, self.search(sources, options=options), strict=True):
            for row, ids in zip(rows.tolist(), found, strict=True):
                outputs[row] = self.codec.tokenizer.decode(ids)
        return outputs

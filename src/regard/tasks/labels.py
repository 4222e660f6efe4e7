"""Tagging, one label per token, and what it shares with classification, one label per text.

An example is a line of text and a line of labels. A tagger needs one label per word, where words are split at spaces; a word
of several subwords has its label at the first one. A classifier needs one label per line.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import msgspec
import numpy as np
import torch

from regard.config import SearchOptions
from regard.data.batch import NO_LABEL, Batch, gather_rows, num_labels
from regard.data.batch_sampler import cut_to_budget
from regard.data.columns import Column, Columns, Indices
from regard.data.ragged import Layout, Ragged
from regard.errors import CheckpointError, ConfigError, DataError, DecodeError
from regard.explain.attention import Axis, recorded_attentions
from regard.explain.trace import Alternative, Trace
from regard.messages import counted
from regard.metrics import TAGS
from regard.models.base import Model
from regard.models.tagger import Labeller
from regard.nn.attention_log import capture_attention
from regard.storage.folder import SMALL, Folder
from regard.tasks.base import Task
from regard.tasks.corpus import TrainingData
from regard.text.corpus import Pair
from regard.text.inputs import as_texts
from regard.text.tokenizer import UNK, Tokenizer, Tokenizers, fit_input_tokenizer, load_tokenizers

LABELS_FILE = "labels.json"
MOST_LABELS = 100_000


@dataclass(frozen=True)
class LabelCodec:
    """A tokenizer for the input, and the names of the labels."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]

    def save(self, folder: Folder) -> None:
        Tokenizers(self.tokenizer, self.tokenizer).save(folder)
        folder.save_json(LABELS_FILE, list(self.labels))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.labels)}

    def label_ids(self, names: Sequence[str]) -> list[int]:
        """Return the number of each label; NO_LABEL for one that training did not have."""
        return [self._numbers.get(name, NO_LABEL) for name in names]


class LabelTask(Task[LabelCodec]):
    """What tagging and classification share."""

    added = (0,)
    per_word: ClassVar[bool]  # whether each word has a label, or the whole text

    @abstractmethod
    def names(self, pair: Pair) -> list[str]:
        """Return the labels of an example."""

    def texts(self, pair: Pair) -> list[str]:
        """Return the texts of an example that are encoded one by one."""
        return [pair.source]

    def fit(self, train: TrainingData) -> LabelCodec:
        config, pairs = self.recipe.tokenizer, train.examples()
        labels = sorted({name for pair in pairs for name in self.names(pair)})
        if not 0 < len(labels) <= MOST_LABELS:
            raise DataError(f"the training examples have {len(labels):,} labels; 1 to {MOST_LABELS:,} can be learnt")
        texts = [text for pair in pairs for text in self.texts(pair)]
        return LabelCodec(fit_input_tokenizer(texts, config), tuple(labels))

    def load_codec(self, folder: Folder) -> LabelCodec:
        try:
            labels = msgspec.convert(folder.load_json(LABELS_FILE, limit=SMALL), tuple[str, ...])
        except msgspec.ValidationError as error:
            raise CheckpointError(f"{folder.path / LABELS_FILE} is damaged: {error}") from error
        words = all(label.split() == [label] for label in labels)
        if not words or not 0 < len(labels) == len(set(labels)) <= MOST_LABELS:
            raise CheckpointError(
                f"{folder.path / LABELS_FILE} is damaged: it must hold distinct labels of one word each"
            )
        return LabelCodec(load_tokenizers(folder).source, labels)

    def sizes(self, codec: LabelCodec) -> dict[str, int]:
        return {"source_size": codec.tokenizer.size, "num_labels": len(codec.labels)}

    def collate(self, columns: Columns, rows: Indices) -> Batch:
        source, labels = gather_rows(columns["source"], rows), gather_rows(columns["labels"], rows)
        return Batch(source, None, labels, num_labels(labels))

    def predictor(
        self,
        model: Model,
        codec: LabelCodec,
        *,
        greedy: bool = False,
        warn: Callable[[str], None] = lambda text: None,
    ) -> LabelPredictor:
        return LabelPredictor(model, codec, self.recipe.decode, warn, per_word=self.per_word)

    @torch.inference_mode()
    def trace(
        self, predictor: LabelPredictor, text: str, *, name: str = "", beam: int | None = None, alternatives: int = 0
    ) -> Trace:
        model, codec = predictor.model, predictor.codec
        ids, places = predictor.encode(text)
        if not ids:
            raise DecodeError("the text is empty; give one with words in it")
        if len(ids) > predictor.limit:
            raise DecodeError(f"the text has {len(ids)} tokens; this model takes at most {predictor.limit}")
        with capture_attention() as log:
            scores = model.scores(Ragged.from_lists([ids], next(model.parameters()).device)).values.float()
        best = scores[places].softmax(dim=-1).topk(min(1 + alternatives, scores.size(-1)), dim=-1)
        found = [
            [(number, round(p, 6)) for number, p in zip(numbers, ps, strict=True)]
            for numbers, ps in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
        axes = {
            "source": Axis.from_text("input", codec.tokenizer.kind, text, ids, predictor.tokenize(text)),
            "target": Axis.from_tokens("labels", [codec.labels[row[0][0]] for row in found]),
        }
        others = [[Alternative(number, codec.labels[number], p, "") for number, p in row[1:]] for row in found]
        return Trace(name, axes, recorded_attentions(model, log, axes), [row[0][1] for row in found], others)


class TaggingTask(LabelTask):
    """A label per token."""

    name = "tagging"
    compares = TAGS
    per_word = True

    def names(self, pair: Pair) -> list[str]:
        return pair.target.split()

    def encode(self, examples: Sequence[Pair], codec: LabelCodec) -> Columns:
        sources, labels = [], []
        for number, pair in enumerate(examples, start=1):
            words, names = pair.source.split(), pair.target.split()
            if len(words) != len(names):
                raise DataError(
                    f"example {number} has {counted(len(words), 'word')} but {counted(len(names), 'label')}; "
                    "each word needs one label"
                )
            ids, starts = encode_words(codec.tokenizer, words)
            sources.append(ids)
            row = np.full(len(ids), NO_LABEL, dtype=np.int32)
            row[starts] = codec.label_ids(names)
            labels.append(row)
        return Columns({"source": Column.from_lists(sources), "labels": Column.from_arrays(labels)}, ("source",))

    def probe(self, codec: LabelCodec, length: int, count: int) -> Batch:
        layout = Layout([length] * count)
        zeros = torch.zeros(layout.total, dtype=torch.int64)
        return Batch(Ragged(zeros, layout), None, Ragged(zeros, layout), layout.total)


class LabelPredictor:
    """A tagger or classifier in use. `warn` receives a message for each text that is cut."""

    def __init__(
        self, model: Model, codec: LabelCodec, options: SearchOptions, warn: Callable[[str], None], *, per_word: bool
    ) -> None:
        if not isinstance(model, Labeller):
            raise ConfigError(f"labels need a model of the class Labeller, and {type(model).__name__} is not one")
        self.model, self.codec, self.budget, self.warn, self.per_word = model, codec, options.tokens, warn, per_word
        self.limit = min(options.max_source, model.max_length or options.max_source)  # tokens of a text

    def encode(self, text: str) -> tuple[list[int], list[int]]:
        """Return the ids of a text, and the rows of its scores that are output: one per word, or the only one."""
        if self.per_word:
            return encode_words(self.codec.tokenizer, text.split())
        return self.codec.tokenizer.encode(text) if text.strip() else [], [0]

    def tokenize(self, text: str) -> list[str]:
        """Return what is written for each id of `encode`."""
        if not self.per_word:
            return self.codec.tokenizer.tokenize(text)
        words = spaced_words(self.codec.tokenizer, text.split())
        return [token for word in words for token in self.codec.tokenizer.tokenize(word) or [word]]

    @torch.inference_mode()
    def predict(self, inputs: Sequence[str], *, options: SearchOptions | None = None) -> list[str]:
        """Return the labels of each text, separated by spaces; an empty text has none. Search options do not apply.

        A text of more than `limit` tokens is cut, and what is cut off has no labels.
        """
        inputs = as_texts(inputs, call="predict()")
        encoded = [self._cut(number, *self.encode(text)) for number, text in enumerate(inputs, start=1)]
        lengths = np.array([len(ids) for ids, _ in encoded], dtype=np.int64)
        order = np.flatnonzero(lengths)
        order = order[np.argsort(-lengths[order], kind="stable")]
        outputs = [""] * len(inputs)
        device = next(self.model.parameters()).device
        for rows in cut_to_budget(order, (lengths,), self.budget):
            scores = self.model.scores(Ragged.from_lists([encoded[row][0] for row in rows], device))
            labels = Ragged(scores.values.argmax(dim=-1), scores.layout).split()
            for row, found in zip(rows.tolist(), labels, strict=True):
                numbers = found.tolist()
                outputs[row] = " ".join(self.codec.labels[numbers[place]] for place in encoded[row][1])
        return outputs

    def _cut(self, number: int, ids: list[int], places: list[int]) -> tuple[list[int], list[int]]:
        if len(ids) <= self.limit:
            return ids, places
        self.warn(f"line {number} has {len(ids)} tokens; only the first {self.limit} are used")
        return ids[: self.limit], [place for place in places if place < self.limit]


def encode_words(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the ids of words joined by spaces, and the place of each word's first id."""
    ids: list[int] = []
    starts: list[int] = []
    for word in spaced_words(tokenizer, words):
        starts.append(len(ids))
        # A word of invisible characters may have no ids, but needs a place for its label.
        ids += tokenizer.encode(word) or [UNK]
    return ids, starts


def spaced_words(tokenizer: Tokenizer, words: Sequence[str]) -> list[str]:
    """Return the words as they are encoded one by one: characters need the spaces between words."""
    return [word if number == 0 or tokenizer.kind != "char" else f" {word}" for number, word in enumerate(words)]

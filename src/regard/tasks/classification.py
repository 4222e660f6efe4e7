"""Classification: one label per text.

A family that reads documents by sentence (`SENTENCES` among its `extras`) gets batches of two levels: one source sequence
per sentence, and the sentences of each document. Other families read a text as one sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from regard.config import Recipe
from regard.data.batch import SENTENCES, Batch, gather_rows, num_labels
from regard.data.columns import Column, Columns, Dataset, Indices
from regard.data.ragged import Layout, Ragged
from regard.explain.trace import Trace, TraceOptions
from regard.metrics import LABELS
from regard.models import MODELS, model_config
from regard.models.base import Model
from regard.tasks.documents import DocumentPredictor, encode_document, trace_document
from regard.tasks.labels import EncodedText, LabelCodec, LabelPredictor, LabelTask, one_label
from regard.tasks.predictor import Warn, ignore
from regard.text.corpus import Pair
from regard.text.segmenter import sentences_of
from regard.text.tokenizer import UNK


class ClassificationTask(LabelTask):
    """A label per text."""

    name = "classification"
    compares = LABELS

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        kind, _ = model_config(recipe.model)
        family = MODELS.get(kind, where="model.kind")
        self.by_sentence = SENTENCES in getattr(family.build, "extras", ())

    # Data

    def names(self, pair: Pair) -> list[str]:
        return one_label(pair)

    def texts(self, pair: Pair) -> list[str]:
        return sentences_of(pair.source) if self.by_sentence else [pair.source]

    def encode(self, examples: Sequence[Pair], codec: LabelCodec) -> Columns:
        labels = Column.from_lists([codec.label_ids(self.names(pair)) for pair in examples])
        # A text of invisible characters may have no ids.
        if not self.by_sentence:
            sources = [ids or [UNK] for ids in codec.tokenizer.encode_all([pair.source for pair in examples])]
            return Columns({"source": Column.from_lists(sources), "labels": labels}, ("source",))
        documents = [encode_document(codec.tokenizer, pair.source).ids or [[UNK]] for pair in examples]
        words = Column.from_lists([[one for ids in sentences for one in ids] for sentences in documents])
        lengths = Column.from_lists([[len(ids) for ids in sentences] for sentences in documents])
        return Columns({"source": words, SENTENCES: lengths, "labels": labels}, ("source",))

    def extras(self, model: Model, dataset: Dataset) -> Callable[[Columns], Columns]:
        """Sentences are a column already."""
        return (lambda columns: columns) if model.extras == (SENTENCES,) else super().extras(model, dataset)

    def collate(self, columns: Columns, rows: Indices) -> Batch:
        labels = gather_rows(columns["labels"], rows)
        if SENTENCES not in columns:
            return Batch(gather_rows(columns["source"], rows), None, labels, num_labels(labels))
        sentences = gather_rows(columns[SENTENCES], rows)
        words = torch.from_numpy(columns["source"].gather(rows).astype(np.int64))
        source = Ragged(words, Layout(sentences.values.tolist()))
        return Batch(source, None, labels, num_labels(labels), {SENTENCES: sentences})

    def probe(self, codec: LabelCodec, length: int, count: int) -> Batch:
        words, documents = torch.zeros(length * count, dtype=torch.int64), Layout([length] * count)
        labels = Ragged(torch.zeros(count, dtype=torch.int64), Layout([1] * count))
        if not self.by_sentence:
            return Batch(Ragged(words, documents), None, labels, count)
        # Sentences of one word: as much memory as so many words can take at both levels.
        sentences = {SENTENCES: Ragged(torch.ones_like(words), documents)}
        return Batch(Ragged(words, Layout([1] * length * count)), None, labels, count, sentences)

    # Models

    def predictor(
        self, model: Model, codec: LabelCodec, *, greedy: bool = False, warn: Warn = ignore
    ) -> TextPredictor | DocumentPredictor:
        kind = DocumentPredictor if self.by_sentence else TextPredictor
        return kind(model, codec, self.recipe.decode, warn)

    def trace(self, predictor: Any, text: str, options: TraceOptions) -> Trace:
        if self.by_sentence:
            return trace_document(predictor, text, options)
        return super().trace(predictor, text, options)


class TextPredictor(LabelPredictor):
    """A classifier in use."""

    def encode(self, text: str) -> EncodedText:
        return EncodedText(self.codec.tokenizer.encode(text) if text.strip() else [], [0])

    def tokenize(self, text: str) -> list[str]:
        return self.codec.tokenizer.tokenize(text)

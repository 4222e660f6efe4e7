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
from regard.errors import DataError
from regard.explain.trace import Trace
from regard.metrics import LABELS
from regard.models import MODELS, model_config
from regard.models.base import Model
from regard.tasks.documents import DocumentPredictor, encode_document, trace_document
from regard.tasks.labels import LabelCodec, LabelPredictor, LabelTask
from regard.text.corpus import Pair
from regard.text.segmenter import sentences_of
from regard.text.tokenizer import UNK


class ClassificationTask(LabelTask):
    """A label per text."""

    name = "classification"
    compares = LABELS
    per_word = False

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        kind, _ = model_config(recipe.model)
        family = MODELS.get(kind, where="model.kind")
        self.by_sentence = SENTENCES in getattr(family.build, "extras", ())

    def names(self, pair: Pair) -> list[str]:
        names = pair.target.split()
        if len(names) != 1:
            raise DataError(f"the label {pair.target[:80]!r} is not one word; write it as one, as in very_good")
        return names

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
        if SENTENCES not in columns:
            return super().collate(columns, rows)
        sentences, labels = gather_rows(columns[SENTENCES], rows), gather_rows(columns["labels"], rows)
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

    def predictor(  # type: ignore[override]
        self,
        model: Model,
        codec: LabelCodec,
        *,
        greedy: bool = False,
        warn: Callable[[str], None] = lambda text: None,
    ) -> LabelPredictor | DocumentPredictor:
        if self.by_sentence:
            return DocumentPredictor(model, codec, self.recipe.decode, warn)
        return super().predictor(model, codec, greedy=greedy, warn=warn)

    def trace(
        self, predictor: Any, text: str, *, name: str = "", beam: int | None = None, alternatives: int = 0
    ) -> Trace:
        if self.by_sentence:
            return trace_document(predictor, text, name=name, alternatives=alternatives)
        return super().trace(predictor, text, name=name, beam=beam, alternatives=alternatives)

"""Hierarchical attention network (Yang et al. 2016): words make sentences, sentences make a document with a label.

    words      bidirectional GRU, attention over the words of each sentence        →  one vector per sentence
    sentences  bidirectional GRU, attention over the sentences of each document    →  one vector per document

A batch has two layouts: that of the source, over the words of all sentences, and that of the extra "sentences", over the
sentences of all documents, in the same order.

Shapes: N words, S sentences, B documents, E width of embeddings, H width of states, L labels.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import MAX_WIDTH, Struct, below_one, between
from regard.data.batch import NO_LABEL, SENTENCES, Batch
from regard.data.ragged import Layout, Ragged
from regard.models.base import Model, make_config
from regard.nn.dropout import Dropout
from regard.nn.linear import Linear
from regard.nn.pooling import AttentionPooling
from regard.nn.recurrent import Recurrent, steps_of


class HanConfig(Struct, frozen=True):
    """The defaults are the paper's."""

    width: int = 200  # of embeddings
    hidden: int = 100  # of the states of each GRU, both directions together
    attention: int = 100  # of what is compared with the learned query, at each level
    dropout: float = 0.0  # on embeddings and on the vectors of sentences and documents

    def check(self) -> None:
        between(self, 1, MAX_WIDTH, "width", "attention")
        between(self, 2, MAX_WIDTH, "hidden")
        below_one(self, "dropout")
        if self.hidden % 2:
            raise ValueError(f"hidden is {self.hidden}; it must be even, for the two directions of a GRU")


class Level(nn.Module):
    """A bidirectional GRU over sequences, and attention that makes each sequence one vector."""

    def __init__(self, width: int, config: HanConfig, model: Model) -> None:
        super().__init__()
        self.gru = Recurrent("gru", width, config.hidden, 1, dropout=0.0, noise=model.noise, bidirectional=True)
        self.attention = AttentionPooling(config.hidden, config.attention)

    def forward(self, x_ND: Tensor, layout: Layout) -> Tensor:
        vectors: Tensor = self.attention(self.gru(x_ND, steps_of(layout)), layout)
        return vectors


class Han(Model):
    """A label per document."""

    extras = (SENTENCES,)
    similar_lengths = True

    def __init__(self, config: HanConfig | None = None, *, source_size: int, num_labels: int, **options: Any) -> None:
        config = make_config(HanConfig, config, options)
        super().__init__()
        self.config, self.width = config, config.width
        self.embedding = nn.Parameter(torch.empty(source_size, config.width).normal_(std=0.1))
        self.dropout = Dropout(config.dropout, self.noise)
        self.words = Level(config.width, config, self)
        self.sentences = Level(config.hidden, config, self)
        self.output = Linear(config.hidden, [num_labels], bias=True, hidden=False)

    @property
    def static_shapes(self) -> bool:
        return True

    def scores(self, source: Ragged, documents: Layout) -> Tensor:
        """Return the logits of every label for each document, [B, L]. `documents` says which sentences each has."""
        x_NE = self.dropout(F.embedding(source.values, self.embedding))
        vectors_SH = self.dropout(self.words(x_NE, source.layout))
        # Static layouts have dummy sentences at their ends, and not equally many.
        number_S = torch.arange(documents.total, device=documents.device).clamp(max=source.layout.num_sentences - 1)
        vectors_BH = self.dropout(self.sentences(vectors_SH.index_select(0, number_S), documents))
        logits: Tensor = self.output(vectors_BH)
        return logits

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        documents, labels = batch.extras[SENTENCES].layout, batch.labels
        logits_BL = self.scores(batch.source, documents).float()
        logits_BL = logits_BL.index_select(0, labels.layout.sentences.clamp(max=documents.num_sentences - 1))
        return F.cross_entropy(
            logits_BL, labels.values.long(), reduction="sum", ignore_index=NO_LABEL, label_smoothing=smoothing
        )

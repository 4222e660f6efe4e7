"""Transformer encoders with labels: one per token (a tagger) or one per sequence (a classifier).

Shapes: M source tokens, B sequences, D width, L labels.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.batch import NO_LABEL, Batch
from regard.data.ragged import Layout, Ragged
from regard.models.base import Model, make_config
from regard.models.transformer import EncoderConfig, TransformerEncoder
from regard.nn.linear import Linear


class Labeller(Model):
    """An encoder that gives scores to labels."""

    def __init__(
        self, config: EncoderConfig | None = None, *, source_size: int, num_labels: int, **options: Any
    ) -> None:
        config = make_config(EncoderConfig, config, options, name=type(self).__name__)
        super().__init__()
        self.config, self.width = config, config.width
        self.max_length = config.max_positions if config.positions == "learned" else None
        self.embedding = nn.Parameter(torch.empty(source_size, config.width).normal_(std=config.width**-0.5))
        self.encoder = TransformerEncoder(config, self)
        self.output = Linear(config.width, [num_labels], bias=True, hidden=False)

    def encode(self, source: Ragged) -> Ragged:
        """Return the encoder's output: [M, D]."""
        x_MD = F.embedding(source.values, self.embedding) * math.sqrt(self.width)
        encoded: Ragged = self.encoder(x_MD, source.layout)
        return encoded

    @abstractmethod
    def scores(self, source: Ragged) -> Ragged:
        """Return the logits of every label, with the layout of the batch's labels: [..., L]."""

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        logits = self.scores(batch.source).values.float()
        labels = batch.labels.values
        return F.cross_entropy(logits, labels, reduction="sum", ignore_index=NO_LABEL, label_smoothing=smoothing)


class Tagger(Labeller):
    """One label per token."""

    def scores(self, source: Ragged) -> Ragged:
        encoded = self.encode(source)
        return Ragged(self.output(encoded.values), encoded.layout)


class Classifier(Labeller):
    """One label per sequence, from the mean of its encoded tokens."""

    def scores(self, source: Ragged) -> Ragged:
        encoded = self.encode(source)
        layout, x_MD = encoded.layout, encoded.values.float()
        sums_BD = x_MD.new_zeros(layout.num_sentences, self.width).index_add(0, layout.sentences, x_MD)
        means_BD = sums_BD / layout.offsets.diff().clamp(min=1)[:, None]
        return Ragged(self.output(means_BD.to(encoded.values.dtype)), Layout([1] * layout.num_sentences, layout.device))

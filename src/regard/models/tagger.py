"""Transformer encoders with labels: one per token (a tagger) or one per sequence (a classifier).

Shapes: M source tokens, B sequences, D width, L labels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from regard.data.batch import NO_LABEL, Batch
from regard.data.ragged import Layout, Ragged
from regard.errors import ConfigError
from regard.models.base import make_config
from regard.models.encoder_decoder import EncoderConfig
from regard.models.word_encoder import NO_EXTRAS, WordConfig, WordEncoder, spelling_of
from regard.nn.crf import Crf
from regard.nn.linear import Linear

MOST_CRF_LABELS = 1000  # each pair of labels has a score


class TaggerConfig(WordConfig, frozen=True):
    """An encoder, and how labels are chosen."""

    crf: bool = False  # labels depend on each other: a conditional random field instead of one softmax per word


class Labeller(WordEncoder):
    """An encoder that gives scores to labels."""

    @abstractmethod
    def scores(self, source: Ragged, extras: Mapping[str, Ragged] = NO_EXTRAS) -> Ragged:
        """Return the logits of every label, with the layout of the batch's labels: [..., L]."""

    def best(self, scores: Ragged) -> Tensor:
        """Return the labels, given the scores of those places alone that have one."""
        return scores.values.argmax(dim=-1)

    def probabilities(self, scores: Ragged) -> Tensor:
        """Return the probability of each label at each place."""
        return scores.values.float().softmax(dim=-1)

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        logits = self.scores(batch.source, batch.extras).values.float()
        labels = batch.labels.values.long()
        return F.cross_entropy(logits, labels, reduction="sum", ignore_index=NO_LABEL, label_smoothing=smoothing)


class Tagger(Labeller):
    """One label per token."""

    def __init__(
        self,
        config: TaggerConfig | None = None,
        *,
        source_size: int,
        num_labels: int,
        num_characters: int = 0,
        num_tags: int = 0,
        **options: Any,
    ) -> None:
        config = make_config(TaggerConfig, config, options)
        spelling = spelling_of(config, num_characters)
        dropout = config.word_dropout
        super().__init__(config, source_size=source_size, spelling=spelling, num_tags=num_tags, word_dropout=dropout)
        if config.crf and num_labels > MOST_CRF_LABELS:
            raise ConfigError(
                f"there are {num_labels:,} labels; a conditional random field takes at most {MOST_CRF_LABELS:,}; "
                "set model.crf=false"
            )
        self.output = Linear(config.width, [num_labels], bias=True, hidden=False)
        self.crf = Crf(num_labels) if config.crf else None
        self.similar_lengths = config.crf

    def scores(self, source: Ragged, extras: Mapping[str, Ragged] = NO_EXTRAS) -> Ragged:
        encoded = self.encode(source, extras)
        return Ragged(self.output(encoded.values), encoded.layout)

    def best(self, scores: Ragged) -> Tensor:
        return super().best(scores) if self.crf is None else self.crf.best(scores.values, scores.layout)

    def probabilities(self, scores: Ragged) -> Tensor:
        return super().probabilities(scores) if self.crf is None else self.crf.marginals(scores.values, scores.layout)

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        """Return the loss. That of a conditional random field is not smoothed."""
        if self.crf is None:
            return super().forward(batch, smoothing=smoothing)
        scores = self.scores(batch.source, batch.extras)
        return self.crf.loss(scores.values, batch.labels.values, scores.layout)


class Classifier(Labeller):
    """One label per sequence, from the mean of its encoded tokens."""

    def __init__(
        self, config: EncoderConfig | None = None, *, source_size: int, num_labels: int, **options: Any
    ) -> None:
        config = make_config(EncoderConfig, config, options)
        super().__init__(config, source_size=source_size)
        self.output = Linear(config.width, [num_labels], bias=True, hidden=False)

    def scores(self, source: Ragged, extras: Mapping[str, Ragged] = NO_EXTRAS) -> Ragged:
        encoded = self.encode(source, extras)
        layout, x_MD = encoded.layout, encoded.values.float()
        sums_BD = x_MD.new_zeros(layout.num_sentences, self.width).index_add(0, layout.sentences, x_MD)
        means_BD = sums_BD / layout.offsets.diff().clamp(min=1)[:, None]
        return Ragged(self.output(means_BD.to(encoded.values.dtype)), Layout([1] * layout.num_sentences, layout.device))

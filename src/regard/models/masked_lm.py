"""A masked language model: an encoder that predicts words that are hidden from it (Devlin et al. 2019).

The output layer is the embedding. Labels are the hidden words, and NO_LABEL elsewhere.

Shapes: M source tokens, P places, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard import kernels
from regard.data.batch import NO_LABEL, Batch
from regard.data.ragged import Ragged
from regard.models.base import make_config
from regard.models.word_encoder import NO_EXTRAS, WordConfig, WordEncoder, spelling_of
from regard.nn.cross_entropy import linear_cross_entropy
from regard.nn.linear import logits_of


class MaskedLm(WordEncoder):
    """The encoder of a tagger, with the same names of parameters, and an output layer that is the embedding."""

    def __init__(
        self, config: WordConfig | None = None, *, source_size: int, num_characters: int = 0, **options: Any
    ) -> None:
        config = make_config(WordConfig, config, options)
        spelling = spelling_of(config, num_characters)
        super().__init__(config, source_size=source_size, spelling=spelling, word_dropout=config.word_dropout)

    @property
    def output_weight(self) -> Tensor:
        return self.embedding

    def scores(self, source: Ragged, places_P: Tensor, extras: Mapping[str, Ragged] = NO_EXTRAS) -> Tensor:
        """Return the logits of the words at some places of the flat source: [P, V]."""
        return logits_of(self.encode(source, extras).values.index_select(0, places_P), self.embedding)

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        hidden_MD, labels_M = self.encode(batch.source, batch.extras).values, batch.labels.values
        places_P = hidden_places(labels_M, static=kernels.usable(hidden_MD))
        hidden_PD, labels_P = hidden_MD.index_select(0, places_P), labels_M.index_select(0, places_P)
        return linear_cross_entropy(hidden_PD, self.embedding, labels_P, smoothing=smoothing)


def hidden_places(labels_M: Tensor, *, static: bool) -> Tensor:
    """Return the places that have a label. `static`: followed by some that have none, so that only M decides how many.

    A quarter of the places and 64 more are enough: about 15 % of many tokens are hidden.
    """
    if not static:
        return (labels_M != NO_LABEL).nonzero()[:, 0]
    return (labels_M == NO_LABEL).byte().argsort(stable=True)[: labels_M.numel() // 4 + 64]

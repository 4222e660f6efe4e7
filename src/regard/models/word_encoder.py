"""The Transformer encoder of models that read words: taggers, classifiers and masked language models.

The vector of a token is its embedding, plus that of its characters and that of its tag if the model reads them. These models
have the same names of parameters, so that one can begin with the weights of another (`train.init`).

Shapes: M source tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import nn

from regard.config import below_one, between
from regard.data.ragged import Ragged
from regard.models.base import Model
from regard.models.encoder_decoder import EncoderConfig, TransformerEncoder
from regard.nn.spelling import Spelling
from regard.text.tokenizer import UNK

CHARACTERS, TAGS = "characters", "tags"  # names of extras
NO_EXTRAS: Mapping[str, Ragged] = {}


class WordConfig(EncoderConfig, frozen=True):
    """An encoder that may read more of a word than its id."""

    characters: int = 0  # characters of a word that are read: its first and its last ones; 0: none
    character_width: int = 32
    word_dropout: float = (
        0.0  # share of words that are unknown in training, besides those that are not in the vocabulary
    )

    def check(self) -> None:
        super().check()
        between(self, 0, 256, "characters")
        between(self, 1, 1024, "character_width")
        below_one(self, "word_dropout")


class WordEncoder(Model):
    """An embedding and an encoder."""

    config: EncoderConfig

    def __init__(
        self,
        config: EncoderConfig,
        *,
        source_size: int,
        spelling: Spelling | None = None,
        num_tags: int = 0,
        word_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.config, self.width, self.word_dropout = config, config.width, word_dropout
        self.max_length = config.max_positions if config.positions == "learned" else None
        self.embedding = nn.Parameter(torch.empty(source_size, config.width).normal_(std=config.width**-0.5))
        self.spelling = spelling
        self.tag_embedding = nn.Parameter(torch.empty(num_tags, config.width).normal_()) if num_tags else None
        self.extras = ((CHARACTERS,) if spelling is not None else ()) + ((TAGS,) if num_tags else ())
        self.encoder = TransformerEncoder(config, self)

    @property
    def static_shapes(self) -> bool:
        return self.config.static_shapes

    def encode(self, source: Ragged, extras: Mapping[str, Ragged] = NO_EXTRAS) -> Ragged:
        """Return the encoder's output: [M, D]."""
        ids_M = source.values
        if self.training and self.word_dropout:
            unknown_M = self.noise.uniform(ids_M.numel(), ids_M.device) < self.word_dropout
            ids_M = ids_M.masked_fill(unknown_M, UNK)
        x_MD = F.embedding(ids_M, self.embedding) * math.sqrt(self.width)
        if self.spelling is not None:
            x_MD = x_MD + self.spelling(extras[CHARACTERS].values)
        if self.tag_embedding is not None:
            # Dummy tokens have a negative tag.
            x_MD = x_MD + F.embedding(extras[TAGS].values.clamp(min=0), self.tag_embedding)
        encoded: Ragged = self.encoder(x_MD, source.layout)
        return encoded


def spelling_of(config: WordConfig, num_characters: int) -> Spelling | None:
    """Return the part of a model that reads characters, if it has one."""
    return Spelling(num_characters, config.character_width, config.width) if config.characters else None

"""What a model saw while it translated one sentence.

Shapes: H heads, Q queries, K keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regard.text.symbols import BOS, RESERVED

Weights = NDArray[np.float32]
Side = Literal["source", "target", "read"]  # what is translated, what is written, and what a decoder had read of it


@dataclass(frozen=True)
class Attention:
    """The weights of one layer: [H, Q, K]."""

    name: str  # "encoder", "decoder", "encoder-decoder", ...
    layer: int  # from 1
    queries: Side
    keys: Side
    weights: Weights


@dataclass(frozen=True)
class Alternative:
    """Another token that could have stood in a place, and what would have followed."""

    id: int
    piece: str
    probability: float
    text: str  # of the whole translation, with it and the likeliest continuation


@dataclass(frozen=True)
class Text:
    """One side of a translation, as a person and as the model sees it."""

    text: str
    ids: list[int]
    tokens: list[str]
    words: list[list[int]]  # the tokens of each word


@dataclass(frozen=True)
class Trace:
    """All of it. The source ends in EOS, as the model reads it; the target does, as it is written."""

    model: str
    source: Text
    target: Text
    attentions: list[Attention]
    probabilities: list[float]  # of each token of the target; none where the model gives none
    alternatives: list[list[Alternative]]  # for each token of the target, likeliest first

    @property
    def read(self) -> Text:
        """What the decoder had read while it wrote the target: BOS, and the target up to the token before."""
        words = [[0], *([index + 1 for index in word] for word in self.target.words[:-1])]
        tokens = [RESERVED[BOS], *self.target.tokens[:-1]]
        return Text(self.target.text, [BOS, *self.target.ids[:-1]], tokens, words)

    def shape_of(self, attention: Attention) -> tuple[int, int]:
        """Its queries and keys, counted by what they are."""
        queries: Text = getattr(self, attention.queries)
        keys: Text = getattr(self, attention.keys)
        return len(queries.tokens), len(keys.tokens)

    def of(self, name: str) -> list[Attention]:
        """The layers of one kind, lowest first."""
        return [one for one in self.attentions if one.name == name]

    @property
    def names(self) -> list[str]:
        """The kinds of attention there are, in the order of the data."""
        return list(dict.fromkeys(one.name for one in self.attentions))

"""Models of PyTorch with a shortlist (`decoding.shortlist`).

The output layer multiplies the union of a batch's vocabularies alone, which is faster on a CPU (Jean et al. 2015). Each row
has the vocabulary of its own sentence, so its neighbours change nothing.

Shapes: B sentences, R rows, U tokens of the union, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import Batch
from regard.data.ragged import Ragged
from regard.decoding.ensemble import Ensemble
from regard.errors import DecodeError
from regard.models.base import Model, Seq2Seq
from regard.models.states import DecoderState
from regard.models.tied_embeddings import TiedEmbeddings
from regard.nn.cross_entropy import cross_entropy


@dataclass
class ShortlistState:
    """The state of the decoder, and which columns of the union each row has."""

    inner: DecoderState
    allowed: Tensor  # [R, U]
    beams: int

    def expand_beams(self) -> None:
        self.inner.expand_beams()
        self.allowed = self.allowed.repeat_interleave(self.beams, dim=0)

    def reorder(self, rows: Tensor) -> None:
        self.inner.reorder(rows)
        self.allowed = self.allowed[rows]


class ShortlistModel(Seq2Seq):
    """A model whose output layer has the columns of one batch alone. It serves one search."""

    def __init__(self, model: TiedEmbeddings, vocabularies: Sequence[NDArray[np.int64]]) -> None:
        super().__init__()
        union = np.unique(np.concatenate(list(vocabularies)))
        allowed_BU = np.zeros((len(vocabularies), len(union)), dtype=np.bool_)
        for allowed_U, ids in zip(allowed_BU, vocabularies, strict=True):
            allowed_U[np.searchsorted(union, ids)] = True
        self.columns_U, self.allowed_BU = torch.from_numpy(union), torch.from_numpy(allowed_BU)
        self.size = model.output_weight.size(0)
        short = model.with_columns(self.columns_U)
        assert isinstance(short, Seq2Seq) and isinstance(model, Seq2Seq)
        self.model: Seq2Seq = short
        self.width, self.max_length = model.width, model.max_length
        self.bos, self.eos, self.never = model.bos, model.eos, model.never

    def encode(self, source: Ragged) -> Any:
        return self.model.encode(source)

    def start(self, memory: Any, *, beams: int) -> ShortlistState:
        return ShortlistState(self.model.start(memory, beams=beams), self.allowed_BU, beams)

    def step(self, tokens: Tensor, state: ShortlistState) -> Tensor:
        return self._all_columns(self.model.step(tokens, state.inner), state.allowed)

    def decode(self, target: Ragged, memory: Any) -> Tensor:
        return self._all_columns(self.model.decode(target, memory), self.allowed_BU[target.layout.sentences])

    def _all_columns(self, logits_RU: Tensor, allowed_RU: Tensor) -> Tensor:
        """Return the logits of the whole vocabulary, [R, V]: minus infinity where a row does not have a token."""
        logits_RV = logits_RU.new_full((len(logits_RU), self.size), float("-inf"))
        return logits_RV.index_copy_(1, self.columns_U, logits_RU.masked_fill(~allowed_RU, float("-inf")))

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        assert batch.target is not None, "a decoder reads a target"
        logits_NV = self.decode(batch.target, self.encode(batch.source))
        return cross_entropy(logits_NV, batch.labels.values, smoothing=smoothing)


def with_shortlist(model: Seq2Seq, vocabularies: Sequence[NDArray[np.int64]]) -> Seq2Seq:
    """Return a model that outputs tokens of these vocabularies alone, one for each sentence of a batch."""
    refuse_without_columns(model)
    if isinstance(model, Ensemble):
        return Ensemble([with_shortlist(one, vocabularies) for one in model.parts])
    assert isinstance(model, TiedEmbeddings)
    return ShortlistModel(model, vocabularies)


def refuse_without_columns(model: Model) -> None:
    """Raise DecodeError if the columns of a model's output layer cannot be chosen."""
    for one in model.parts if isinstance(model, Ensemble) else (model,):
        # A model whose steps are captured as CUDA graphs is not one with an output layer, but has one.
        if one.non_autoregressive or one.copies or not isinstance(one, TiedEmbeddings) or one.output_weight.is_cuda:
            raise DecodeError("shortlist is for models on a CPU that output tokens of a vocabulary one after another")

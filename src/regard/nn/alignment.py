"""Attention of a recurrent decoder: scores of a decoder state s and an annotation h of the source.

dot        s·h                        Luong et al. 2015
general    s·Wh                       Luong et al. 2015
additive   v·tanh(Ws + Uh)            Bahdanau et al. 2015; Luong's "concat" is the same function

With a window w the decoder also predicts a position, p = (S-1)·sigmoid(v·tanh(Ws)). It attends to annotations from p-w to
p+w, weighted by a Gaussian around p with standard deviation w/2 (Luong's local-p).

Shapes: B sentences, Q states per sentence, S annotations of the longest sentence, D width of a state, E of an annotation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.data.ragged import Layout, Ragged
from regard.nn.attend import AttentionMask, attend, attend_explicit
from regard.nn.attention_log import ENCODER_DECODER, current_log
from regard.nn.device import product_dtype
from regard.nn.linear import Linear

Score = Literal["dot", "general", "additive", "concat"]


@dataclass(frozen=True)
class Annotations:
    """The encoded source, padded, for attention."""

    keys: Tensor  # compared with states: [B, S, D]
    values: Tensor  # averaged: [B, S, E]
    bias: Tensor  # zero for tokens, minus infinity for padding: [B, 1, S]
    lengths: Tensor  # [B]

    @classmethod
    def made_of(cls, keys_MD: Tensor, values_MD: Tensor, layout: Layout) -> Annotations:
        """Return the annotations of a source with these keys and values."""
        holes_BS = ~layout.mask
        holes_BS[:, :1].fill_(False)  # an empty sentence needs one key for a finite softmax; its output is not used
        bias_BS = torch.zeros(holes_BS.shape, device=layout.device).masked_fill_(holes_BS, float("-inf"))
        lengths = (~holes_BS).sum(dim=1)
        return cls(layout.pad(keys_MD), layout.pad(values_MD), bias_BS[:, None], lengths)

    def of(self, sentences: Tensor) -> Annotations:
        """Return the annotations of these sentences, in this order."""
        parts = (self.keys, self.values, self.bias, self.lengths)
        return Annotations(*(part.index_select(0, sentences) for part in parts))

    def first(self, count: int) -> Annotations:
        """Return the annotations of the first `count` sentences."""
        return Annotations(self.keys[:count], self.values[:count], self.bias[:count], self.lengths[:count])


class Alignment(nn.Module):
    """Attention weights over the source, and the weighted mean of its values."""

    def __init__(self, score: Score, width: int, source_width: int, *, window: int | None = None) -> None:
        super().__init__()
        assert score != "dot" or width == source_width, (width, source_width)
        self.score, self.window = score, window
        added = score in ("additive", "concat")
        self.of_state = Linear(width, [width], bias=True) if added else None
        self.of_source = Linear(source_width, [width], bias=False) if score != "dot" else None
        self.v = nn.Parameter(torch.empty(width).uniform_(-(width**-0.5), width**-0.5)) if added else None
        self.where = Linear(width, [width], bias=False) if window is not None else None
        self.v_where = nn.Parameter(torch.zeros(width)) if window is not None else None

    def annotate(self, source: Ragged) -> Annotations:
        """Return the annotations of a source. Computed once per source."""
        keys = source.values if self.of_source is None else self.of_source(source.values)
        return Annotations.made_of(keys, source.values, source.layout)

    def forward(self, states_BQD: Tensor, source: Annotations) -> tuple[Tensor, Tensor]:
        """Return the weighted mean for each state, [B, Q, E], and its weights, [B, Q, S]."""
        scores_BQS = self._scores(states_BQD, source.keys).float() + source.bias
        local = self.window is not None
        weights = self._local(states_BQD, scores_BQS, source) if local else scores_BQS.softmax(dim=-1)
        log = current_log()
        if log is not None:
            log.add(
                self,
                [one[None, :, :length] for one, length in zip(weights, source.lengths.tolist(), strict=True)],
                ENCODER_DECODER,
            )
        return torch.bmm(weights.to(source.values.dtype), source.values), weights

    def over(self, states_ND: Tensor, keys_MD: Tensor, values_ME: Tensor, mask: AttentionMask) -> Tensor:
        """Return the weighted mean for each state of a flat batch, by `attend`: [N, E]. For "dot" without a window."""
        assert self.score == "dot" and self.window is None
        q_NHK = (states_ND * math.sqrt(states_ND.size(-1)))[:, None]  # `attend` divides by this factor
        q_NHK, k_MHK, v_MHV = (one.to(product_dtype(one)) for one in (q_NHK, keys_MD[:, None], values_ME[:, None]))
        log = current_log()
        if log is None:
            return attend(q_NHK, k_MHK, v_MHV, mask)[:, 0]
        read_NHV, weights = attend_explicit(q_NHK, k_MHK, v_MHV, mask)
        log.add(self, weights, ENCODER_DECODER)
        return read_NHV[:, 0]

    def _scores(self, states_BQD: Tensor, keys_BSD: Tensor) -> Tensor:
        if self.of_state is None or self.v is None:
            return torch.bmm(states_BQD, keys_BSD.transpose(1, 2))
        return torch.tanh(_each(self.of_state, states_BQD)[:, :, None] + keys_BSD[:, None]) @ self.v

    def _local(self, states_BQD: Tensor, scores_BQS: Tensor, source: Annotations) -> Tensor:
        assert self.where is not None and self.v_where is not None and self.window is not None
        share_BQ = torch.sigmoid(torch.tanh(_each(self.where, states_BQD)) @ self.v_where).float()
        centre_BQ1 = (share_BQ * (source.lengths[:, None] - 1))[:, :, None]
        distance_BQS = torch.arange(scores_BQS.size(-1), device=scores_BQS.device) - centre_BQ1
        near = scores_BQS.masked_fill(distance_BQS.abs() > max(self.window, 0.5), float("-inf"))
        bell = torch.exp(-(distance_BQS**2) / (2 * max(self.window / 2, 0.5) ** 2))
        return near.softmax(dim=-1) * bell


def _each(linear: Linear, states_BQD: Tensor) -> Tensor:
    """Return the layer's output for the states of all sentences."""
    out: Tensor = linear(states_BQD.flatten(0, 1))
    return out.unflatten(0, states_BQD.shape[:2])

"""Attention that reduces each sequence to one vector: how much each of its states matters is learned.

    u = tanh(W h + b),   weight = softmax(u · c) within the sequence,   vector = Σ weight · h      (Yang et al. 2016)

The query c is a parameter: what an informative state looks like.

Shapes: N states, B sequences, H width of a state, A width of u.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.data.ragged import Layout
from regard.nn.attention_log import current_log
from regard.nn.linear import Linear


class AttentionPooling(nn.Module):
    """The weighted mean of the states of each sequence."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.compare = Linear(width, [hidden], bias=True)
        self.query = nn.Parameter(torch.empty(hidden).normal_(std=hidden**-0.5))

    def forward(self, states_NH: Tensor, layout: Layout) -> Tensor:
        """Return one vector per sequence, [B, H]; that of an empty sequence is zero."""
        # A dot product with few values is not worth a narrow number format.
        scores_N = torch.tanh(self.compare(states_NH)).float() @ self.query.float()
        weights_N = softmax_within(scores_N, layout)
        log = current_log()
        if log is not None:
            log.add(self, [one[None, None] for one in weights_N.split(layout.offsets.diff().tolist())])
        vectors_BH = states_NH.new_zeros(layout.num_sentences, states_NH.size(1), dtype=torch.float32)
        return vectors_BH.index_add(0, layout.sentences, weights_N[:, None] * states_NH.float()).to(states_NH.dtype)


def softmax_within(scores_N: Tensor, layout: Layout) -> Tensor:
    """Return the softmax over each sequence of a flat batch: [N]. No lengths are needed on the host."""
    sequence_N = layout.sentences.long()
    largest_B = scores_N.new_full((layout.num_sentences,), float("-inf"))
    largest_B = largest_B.scatter_reduce(0, sequence_N, scores_N.detach(), "amax")
    exp_N = (scores_N - largest_B.index_select(0, sequence_N)).exp()
    sums_B = exp_N.new_zeros(layout.num_sentences).index_add(0, sequence_N, exp_N)
    return exp_N / sums_B.index_select(0, sequence_N)

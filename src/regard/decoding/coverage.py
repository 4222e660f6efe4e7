"""The coverage penalty (Wu et al. 2016): hypotheses that leave tokens of the source without attention score lower.

A finished hypothesis is decoded once more with its attention recorded. The attention is that of the decoder's last layer
over the source, as a mean over its heads and, in an ensemble, over the members.

Shapes: H heads, Q queries: the tokens of a hypothesis and EOS, S tokens of its source.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.data.budget import cut_to_budget
from regard.data.ragged import Ragged
from regard.decoding.backend import Row
from regard.errors import DecodeError
from regard.models.base import Model, Seq2Seq, TextSeq2Seq
from regard.nn.attention_log import ENCODER_DECODER, capture_attention
from regard.text.symbols import EOS, UNK

LEAST = 1e-6  # attention of a token that has less, such as those outside of the windows of local attention


def refuse_without_attention(model: Model) -> None:
    """Raise DecodeError if a model has no attention over the source."""
    if not isinstance(model, Seq2Seq):
        raise DecodeError("coverage_penalty needs a model that outputs one token after another, and this one does not")
    for member in model.members:
        if not isinstance(member, TextSeq2Seq) or not source_attention(member, [([UNK], [])]):
            raise DecodeError(
                f"coverage_penalty needs attention over the source, which this {type(member).__name__} has not"
            )


def coverage_penalties(model: Model, rows: Sequence[Row], *, tags: int = 0, budget: int = 8192) -> list[float]:
    """Return the sum over source tokens of log(min(attention that the token gets, 1)), for each hypothesis.

    The first `tags` tokens of a source and its EOS do not count. A batch has at most `budget` tokens.
    """
    assert isinstance(model, Seq2Seq)
    source_lengths = np.array([len(source) + 1 for source, _ in rows], dtype=np.int64)
    target_lengths = np.array([len(target) + 1 for _, target in rows], dtype=np.int64)
    penalties = [0.0] * len(rows)
    # Longest hypotheses first: a recurrent decoder records each step in this order.
    order = np.lexsort((-source_lengths, -target_lengths))
    for numbers in cut_to_budget(order, (source_lengths, target_lengths), budget):
        batch = [rows[number] for number in numbers]
        attentions = zip(*(source_attention(member, batch) for member in model.members), strict=True)
        for number, (source, _), members in zip(numbers.tolist(), batch, attentions, strict=True):
            covered_S = torch.stack([one.sum(dim=0) for one in members]).mean(dim=0)[tags : len(source)]
            penalties[number] = float(covered_S.clamp(LEAST, 1.0).log().sum())
    return penalties


@torch.inference_mode()
def source_attention(model: Seq2Seq, rows: Sequence[Row]) -> list[Tensor]:
    """Return the attention over each source, [Q, S]; an empty list if the model has none. The longest target comes first."""
    assert isinstance(model, TextSeq2Seq)
    device = next(model.parameters()).device
    memory = model.encode(Ragged.from_lists([[*source, EOS] for source, _ in rows], device))
    # The longest hypothesis of a model with learned positions has no room for EOS.
    targets = [[model.bos, *target][: model.max_length] for _, target in rows]
    with capture_attention() as log:
        model.hidden(Ragged.from_lists(targets, device), memory)
    layers = [one for one in model.modules() if log.kinds.get(one) == ENCODER_DECODER]
    if not layers:
        return []
    calls = log.calls[layers[-1]]
    # One call for all queries, or one per query, without the rows that have ended.
    found = [torch.cat([call[row] for call in calls if row < len(call)], dim=1) for row in range(len(rows))]
    return [one.float().mean(dim=0)[: len(target)] for one, target in zip(found, targets, strict=True)]

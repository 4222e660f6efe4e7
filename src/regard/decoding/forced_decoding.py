"""Forced decoding: the probability that a model gives to each token of given outputs, all positions at once.

Shapes: N output tokens of a batch, V columns of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import shift_right
from regard.data.budget import cut_to_budget
from regard.data.ragged import Ragged
from regard.decoding.hypothesis import Check, TokenScores, never_stop
from regard.decoding.ranking import log_normalizer
from regard.errors import DecodeError
from regard.models.base import Seq2Seq

TOKENS = 2048  # of the outputs of a batch at most: the logits of all of them are in memory


class ForcedBatch(NamedTuple):
    """Some outputs, and the logits of each of their tokens."""

    rows: list[int]  # the numbers of the outputs
    labels: Ragged
    logits: Tensor  # [N, V]


def forced_batches(
    model: Seq2Seq,
    sources: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
    *,
    tokens: int = TOKENS,
    check: Check = never_stop,
) -> Iterator[ForcedBatch]:
    """Yield the logits of outputs, in any order, in batches of at most `tokens` tokens.

    Sources are as the encoder reads them, with EOS. Outputs end in EOS, unless there was no room for it, and have at least
    one token. `check` is called before each batch.
    """
    device = next(model.parameters()).device
    lengths = tuple(np.array([len(ids) for ids in some], dtype=np.int64) for some in (sources, outputs))
    # Similar lengths together, the longest first, so that too little memory is noticed at once.
    order = np.lexsort(lengths)[::-1]
    for rows in cut_to_budget(order, lengths, min(tokens, TOKENS)):
        check()
        with torch.inference_mode():
            source = Ragged.from_lists([sources[row] for row in rows], device)
            labels = Ragged.from_lists([outputs[row] for row in rows], device)
            logits_NV = model.decode(shift_right(labels, model.bos), model.encode(source)).float()
            yield ForcedBatch(rows.tolist(), labels, logits_NV)


def forced_scores(
    model: Seq2Seq,
    sources: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
    *,
    temperature: float | None = None,
    tokens: int = TOKENS,
    check: Check = never_stop,
) -> list[TokenScores]:
    """Return the log-probability of each token of the outputs; see `forced_batches`.

    With a temperature there are also those of logits that are divided by it.
    """
    found: dict[int, TokenScores] = {}
    for rows, labels, logits_NV in forced_batches(model, sources, outputs, tokens=tokens, check=check):
        plain = _by_output(log_probabilities(logits_NV, labels.values), labels)
        if not all(math.isfinite(one) or one == -math.inf for some in plain for one in some):
            raise DecodeError("the model's scores are not finite; its weights are damaged, or it has diverged")
        if temperature is None:
            found.update((row, TokenScores(some)) for row, some in zip(rows, plain, strict=True))
            continue
        warmed = _by_output(log_probabilities(logits_NV / temperature, labels.values), labels)
        found.update((row, TokenScores(*both)) for row, *both in zip(rows, plain, warmed, strict=True))
    return [found[row] for row in range(len(outputs))]


def log_probabilities(logits_NV: Tensor, labels_N: Tensor) -> Tensor:
    """Return the log-probability of each label: [N]."""
    return logits_NV.gather(1, labels_N[:, None])[:, 0] - log_normalizer(logits_NV)


def _by_output(values_N: Tensor, labels: Ragged) -> list[list[float]]:
    return [one.tolist() for one in values_N.split(labels.layout.lengths)]

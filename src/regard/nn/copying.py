"""Copying tokens of the source: an attention over them, and a gate between it and the vocabulary.

The output distribution is g · softmax(vocabulary) + (1 - g) · attention over the source, where the attention to equal tokens
is added up (See et al. 2017, equations 8 and 9, where g is p_gen). Here the attention is a head of its own, as in Gulcehre
et al. 2016, so that every decoder can have one. The gate reads the decoder's output and the mean of the source under this
attention.

Words of a source that the vocabulary does not have are ids behind it: V, V + 1, ... (`text.unknown_words`).

Shapes: N target tokens, B sentences, T tokens per sentence (or beams), S the longest source, D width of the decoder's
        output, A of the encoder's, V vocabulary, X columns: V and the further ids of this batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.ragged import Layout
from regard.nn.attention_log import COPY, current_log
from regard.nn.linear import Linear

# Log-probability of what cannot be. It is finite, so that gradients are; exp of it is 0.
NEVER = -1e30


@dataclass(frozen=True)
class CopySource:
    """A batch of sources to copy from, padded."""

    keys: Tensor  # [B, S, D]
    values: Tensor  # [B, S, A]
    ids: Tensor  # [B, S]
    missing: Tensor  # True where there is no token: [B, S]

    def of(self, sentences: Tensor) -> CopySource:
        """Return these sentences, in this order."""
        parts = (self.keys, self.values, self.ids, self.missing)
        return CopySource(*(part.index_select(0, sentences) for part in parts))

    def columns(self, vocabulary: int) -> int:
        """Return how many columns the scores need: the vocabulary, and ids behind it. Reads a number from the device."""
        return max(vocabulary, int(self.ids.max()) + 1)


@dataclass(frozen=True)
class CopyState:
    """What search keeps of the sources to copy from."""

    source: CopySource
    columns: int  # of the scores, for all steps of a batch

    def of(self, sentences: Tensor) -> CopyState:
        """Return these sentences, in this order."""
        return CopyState(self.source.of(sentences), self.columns)


class Copying(nn.Module):
    """The attention that copies, and its gate."""

    def __init__(self, width: int, source_width: int) -> None:
        super().__init__()
        self.query = Linear(width, [width], bias=False)
        self.key = Linear(source_width, [width], bias=False)
        self.gate = Linear(width + source_width, [1], bias=True, hidden=False)

    def source(self, values_MA: Tensor, ids_M: Tensor, layout: Layout) -> CopySource:
        """Return the encoded source as `forward` reads it."""
        keys_BSD = layout.pad(self.key(values_MA))
        with torch.no_grad():
            ids_BS = layout.pad(ids_M)
        return CopySource(keys_BSD, layout.pad(values_MA), ids_BS, ~layout.mask)

    def forward(self, hidden_BTD: Tensor, source: CopySource) -> tuple[Tensor, Tensor]:
        """Return the log of the attention, [B, T, S], and the logit of the gate, [B, T]: high to use the vocabulary."""
        B, T, D = hidden_BTD.shape
        q_BTD = self.query(hidden_BTD.flatten(0, 1)).view(B, T, D).to(source.keys.dtype)
        scores_BTS = (q_BTD @ source.keys.transpose(1, 2)).float() * D**-0.5
        log_BTS = scores_BTS.masked_fill(source.missing[:, None], NEVER).log_softmax(dim=-1)
        weights_BTS = log_BTS.exp()
        if (log := current_log()) is not None:
            log.add(self, [one[None] for one in weights_BTS], COPY)
        context_BTA = weights_BTS.to(source.values.dtype) @ source.values
        read = torch.cat([hidden_BTD.to(context_BTA.dtype), context_BTA], dim=-1)
        gate_BT = self.gate(read.flatten(0, 1)).float().view(B, T)
        if log is not None:
            log.gates.append(gate_BT.detach().sigmoid())
        return log_BTS, gate_BT


def copied_log_probability(log_BTS: Tensor, source: CopySource, labels_BT: Tensor) -> Tensor:
    """Return the log of the attention to all source tokens that equal the label: [B, T]; NEVER where none does."""
    same_BTS = (source.ids[:, None] == labels_BT[:, :, None]) & ~source.missing[:, None]
    return log_BTS.masked_fill(~same_BTS, NEVER).logsumexp(dim=-1)


def mixture_loss(logits_NV: Tensor, gate_N: Tensor, copied_N: Tensor, labels_N: Tensor, *, smoothing: float) -> Tensor:
    """Return the summed cross-entropy of the mixture. Labels below 0 do not count; those from V on can only be copied.

    Of the mixture only the label's probability is computed. Smoothing applies to the distribution over the vocabulary.
    """
    V = logits_NV.size(1)
    logits_NV = logits_NV.float()
    normalizer_N = logits_NV.logsumexp(dim=-1)
    right_N = logits_NV.gather(1, labels_N.clamp(0, V - 1)[:, None])[:, 0] - normalizer_N
    right_N = right_N.masked_fill(labels_N >= V, NEVER)
    mixed_N = torch.logaddexp(F.logsigmoid(gate_N) + right_N, F.logsigmoid(-gate_N) + copied_N)
    mean_N = logits_NV.mean(dim=-1) - normalizer_N
    loss_N = -(1 - smoothing) * mixed_N - smoothing * mean_N
    return loss_N.masked_fill(labels_N < 0, 0.0).sum()


def mixture(logits_NV: Tensor, gate_N: Tensor, log_NS: Tensor, ids_NS: Tensor, columns: int) -> Tensor:
    """Return the log of the mixture: [N, X]. Columns that a sentence does not have are minus infinity."""
    N, V = logits_NV.shape
    copied_NX = log_NS.new_zeros(N, columns).scatter_add_(1, ids_NS, log_NS.exp()).log()
    generated_NV = logits_NV.float().log_softmax(dim=-1) + F.logsigmoid(gate_N)[:, None]
    copied_NX += F.logsigmoid(-gate_N)[:, None]
    mixed_NV = torch.logaddexp(generated_NV, copied_NX[:, :V])
    return torch.cat([mixed_NV, copied_NX[:, V:]], dim=1)

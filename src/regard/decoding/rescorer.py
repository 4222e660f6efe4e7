"""Rescoring the outputs of one model with another, autoregressive model: noisy parallel decoding (Gu et al. 2018).

The two models may have different tokenizers, so texts are scored, not ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from regard.config import SearchOptions
from regard.data.batch import make_batch
from regard.data.batch_sampler import cut_to_budget
from regard.decoding.ranking import length_penalty
from regard.models.base import TextSeq2Seq
from regard.text.tokenizer import Tokenizers

CHUNK = 1024  # tokens whose logits are in memory at a time


@dataclass(frozen=True)
class Rescorer:
    """A model that scores translations."""

    model: TextSeq2Seq
    tokenizers: Tokenizers
    options: SearchOptions  # the length penalty, and the tokens per batch
    tags: tuple[str, ...] = ()  # symbols in front of each source

    def with_tags(self, tags: Sequence[str]) -> Rescorer:
        """Return a rescorer with those of these symbols in front of each source that its model knows."""
        return replace(self, tags=tuple(tag for tag in tags if tag in self.tokenizers.tags))

    @torch.inference_mode()
    def scores(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """Return the log-probability of each translation, EOS included, divided by the length penalty."""
        model = self.model
        device = next(model.parameters()).device
        # Longer texts are scored by their beginnings.
        most = None if model.max_length is None else model.max_length - 1
        tags = self.tokenizers.tag_ids(self.tags)
        source_ids = [[*tags, *ids][:most] for ids in self.tokenizers.source.encode_all(list(sources))]
        target_ids = [ids[:most] for ids in self.tokenizers.target.encode_all(list(targets))]
        source_lengths = np.array([len(ids) + 1 for ids in source_ids], dtype=np.int64)
        target_lengths = np.array([len(ids) + 1 for ids in target_ids], dtype=np.int64)
        order = np.lexsort((source_lengths, target_lengths))
        results = [0.0] * len(sources)
        for rows in cut_to_budget(order, (source_lengths, target_lengths), self.options.tokens):
            batch = make_batch([source_ids[n] for n in rows], [target_ids[n] for n in rows], device)
            assert batch.target is not None
            hidden_ND = model.hidden(batch.target, model.encode(batch.source))
            chunks = zip(hidden_ND.split(CHUNK), batch.labels.values.split(CHUNK), strict=True)
            logp_N = torch.cat([_logp(model.project(hidden), labels) for hidden, labels in chunks])
            sums = torch.zeros(len(rows), device=device).index_add(0, batch.target.layout.sentences, logp_N)
            for row, total in zip(rows.tolist(), sums.tolist(), strict=True):
                results[row] = total / length_penalty(int(target_lengths[row]), self.options)
        return results


def _logp(logits_NV: Tensor, labels_N: Tensor) -> Tensor:
    return logits_NV.float().log_softmax(dim=-1).gather(1, labels_N[:, None])[:, 0]

"""Models that can copy tokens of their source: the pointer-generator of See et al. 2017, for any decoder.

A source may hold ids from V on, which stand for its words that the vocabulary of V does not have (`text.unknown_words`).
Encoder and decoder read them as UNK, and the scores have a column for each. A step costs one attention more; the loss never
holds the mixture of both distributions.

Shapes: N target tokens, R rows in search, B sentences, T target tokens per sentence, S the longest source, D width, V
        vocabulary, X columns of the scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.data.batch import Batch
from regard.data.ragged import Ragged
from regard.errors import ConfigError
from regard.models.base import TextSeq2Seq
from regard.nn.copying import Copying, CopySource, CopyState, copied_log_probability, mixture, mixture_loss
from regard.text.tokenizer import BOS, UNK


@dataclass(frozen=True)
class SourceMemory(Ragged):
    """An encoded source with its ids, which the output may copy."""

    ids: Tensor


class CopyingSeq2Seq(TextSeq2Seq):
    """A text model that copies, if `start_copying` is called when it is built; else nothing changes."""

    copying: Copying | None
    vocabulary: int

    def __init__(self) -> None:
        super().__init__()
        self.copying = None

    def start_copying(self, width: int, source_width: int, *, source_size: int, target_size: int) -> None:
        """Add the attention that copies. Both sides need the same ids."""
        if source_size != target_size:
            raise ConfigError(
                "model.copy copies ids of the source, so both sides need one vocabulary: set tokenizer.joint"
            )
        self.copying, self.vocabulary = Copying(width, source_width), target_size
        self.copies = True
        # The rectangle of targets and sources is small if lengths are similar.
        self.similar_lengths = True
        # An unknown word is copied, and never output as unknown.
        self.never = (UNK, BOS)

    def known(self, ids: Tensor) -> Tensor:
        """Return ids as they are embedded: those behind the vocabulary are unknown words."""
        return ids if self.copying is None else ids.masked_fill(ids >= self.vocabulary, UNK)

    def copy_source(self, memory: Any) -> CopySource:
        """Return what can be copied of a source that `encode` returned."""
        assert self.copying is not None
        return self.copying.source(memory.values, memory.ids, memory.layout)

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        if self.copying is None:
            return super().forward(batch, smoothing=smoothing)
        assert batch.target is not None, "a decoder reads a target"
        memory, layout, labels_N = self.encode(batch.source), batch.target.layout, batch.labels.values
        hidden_ND, source = self.hidden(batch.target, memory), self.copy_source(memory)
        log_BTS, gate_BT = self.copying(layout.pad(hidden_ND), source)
        copied_BT = copied_log_probability(log_BTS, source, layout.pad(labels_N))
        logits_NV = self.project(hidden_ND)
        return mixture_loss(
            logits_NV, layout.unpad(gate_BT), layout.unpad(copied_BT), labels_N.long(), smoothing=smoothing
        )

    def decode(self, target: Ragged, memory: Any) -> Tensor:
        if self.copying is None:
            return super().decode(target, memory)
        layout, hidden_ND, source = target.layout, self.hidden(target, memory), self.copy_source(memory)
        log_BTS, gate_BT = self.copying(layout.pad(hidden_ND), source)
        ids_NS = source.ids.index_select(0, layout.sentences).long()
        columns = source.columns(self.vocabulary)
        return mixture(self.project(hidden_ND), layout.unpad(gate_BT), layout.unpad(log_BTS), ids_NS, columns)

    # In search

    def start_copy(self, memory: Any) -> CopyState | None:
        """Return what `step_scores` needs; None for a model that does not copy."""
        if self.copying is None:
            return None
        source = self.copy_source(memory)
        return CopyState(source, source.columns(self.vocabulary))

    def step_scores(self, hidden_RD: Tensor, state: CopyState | None) -> Tensor:
        """Return the scores of each row's next token: [R, V] without copying, [R, X] with it."""
        if self.copying is None or state is None:
            return self.project(hidden_RD)
        B = state.source.ids.size(0)
        log_BQS, gate_BQ = self.copying(hidden_RD.unflatten(0, (B, -1)), state.source)
        ids_RS = state.source.ids.repeat_interleave(log_BQS.size(1), dim=0)
        return mixture(self.project(hidden_RD), gate_BQ.flatten(), log_BQS.flatten(0, 1), ids_RS, state.columns)

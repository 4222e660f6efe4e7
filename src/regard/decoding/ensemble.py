"""Several models that are searched as one: the probability of a token is the mean over the models.

Shapes: N target tokens, R rows, V columns of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from regard.data.batch import Batch
from regard.data.ragged import Ragged
from regard.errors import ConfigError
from regard.models.base import Model, Seq2Seq
from regard.models.states import DecoderState
from regard.nn.cross_entropy import cross_entropy


class EnsembleState:
    """The states of all members."""

    def __init__(self, states: list[DecoderState]) -> None:
        self.states = states

    def expand_beams(self) -> None:
        for state in self.states:
            state.expand_beams()

    def reorder(self, rows: Tensor) -> None:
        for state in self.states:
            state.reorder(rows)


class Ensemble(Seq2Seq):
    """Models of one vocabulary, of any families. It serves search; the members are trained one by one."""

    def __init__(self, models: Sequence[Model]) -> None:
        super().__init__()
        members = [model for model in models if isinstance(model, Seq2Seq)]
        if not members or len(members) < len(models):
            raise ConfigError("an ensemble takes models that output one token after another")
        first = members[0]
        for name in ("copies", "bos", "eos", "never"):
            if any(getattr(one, name) != getattr(first, name) for one in members):
                raise ConfigError(f"the models of an ensemble differ in {name}; take models of one kind of output")
        self.models = nn.ModuleList(members)
        self.width = first.width
        self.max_length = min((one.max_length for one in members if one.max_length is not None), default=None)
        self.bos, self.eos, self.never, self.copies = first.bos, first.eos, first.never, first.copies
        self.reads_source_eos = all(one.reads_source_eos for one in members)

    @property
    def members(self) -> tuple[Seq2Seq, ...]:
        return tuple(member for one in self.parts for member in one.members)

    @property
    def parts(self) -> list[Seq2Seq]:
        """The models as they were given, each of which may be an ensemble or have captured steps."""
        return list(self.models)  # type: ignore[arg-type]

    def for_inference(self, *, precision: torch.dtype = torch.float32) -> Self:
        return type(self)([one.for_inference(precision=precision) for one in self.parts])

    def encode(self, source: Ragged) -> list[Any]:
        return [one.encode(source) for one in self.parts]

    def decode(self, target: Ragged, memory: list[Any]) -> Tensor:
        return log_mean([one.decode(target, own) for one, own in zip(self.parts, memory, strict=True)])

    def start(self, memory: list[Any], *, beams: int) -> EnsembleState:
        return EnsembleState([one.start(own, beams=beams) for one, own in zip(self.parts, memory, strict=True)])

    def step(self, tokens: Tensor, state: EnsembleState) -> Tensor:
        return log_mean([one.step(tokens, own) for one, own in zip(self.parts, state.states, strict=True)])

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        assert batch.target is not None, "a decoder reads a target"
        logits_NV = self.decode(batch.target, self.encode(batch.source))
        return cross_entropy(logits_NV, batch.labels.values, smoothing=smoothing)


def log_mean(logits: Sequence[Tensor]) -> Tensor:
    """Return the log of the mean of the probabilities that some logits, [R, V] each, stand for: [R, V]."""
    logp = torch.stack([one.float().log_softmax(dim=-1) for one in logits])
    return logp.logsumexp(dim=0) - math.log(len(logits))

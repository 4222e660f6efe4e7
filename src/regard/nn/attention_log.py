"""Capture attention weights.

>>> with capture_attention() as log:
...     model(batch)
>>> log.calls[model.decoder[0].cross_attention][0]      # the first call: one tensor [H, queries, keys] per sentence
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from torch import Tensor, nn

_current: ContextVar[AttentionLog | None] = ContextVar("current_log", default=None)


class AttentionKind(NamedTuple):
    """What an attention is called, and the names of its axes."""

    name: str
    queries: str
    keys: str
    self_attention: bool = False  # whether position i of both axes belongs to the same hidden state


ENCODER_DECODER = AttentionKind("encoder-decoder", "target", "source")
COPY = AttentionKind("copy", "target", "source")
POSITIONS = AttentionKind("positions", "target", "target", self_attention=True)
GATES = AttentionKind("gates", "sentences", "slots")
ANSWER = AttentionKind("answer", "target", "slots")


class AttentionLog:
    """The weights of each attention module, by call: for each sentence [H, queries, keys]."""

    def __init__(self) -> None:
        self.calls: dict[nn.Module, list[list[Tensor]]] = {}
        # Of modules that know theirs. That of self-attention follows from where it is in the model.
        self.kinds: dict[nn.Module, AttentionKind] = {}
        # Queries and keys of the last call of multi-head attention: [tokens, H, width].
        self.products: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        self.gates: list[Tensor] = []  # p_gen of models that copy, by call: [sentences, queries]
        self.memory_steps: list[Any] = []  # what the heads of a model with an external memory did, step by step

    def add(self, attention: nn.Module, weights: Sequence[Tensor], kind: AttentionKind | None = None) -> None:
        """Add the weights of one call, one tensor per sentence."""
        self.calls.setdefault(attention, []).append([one.detach() for one in weights])
        if kind is not None:
            self.kinds[attention] = kind

    def first(self, kind: AttentionKind) -> Tensor | None:
        """Return the weights of the first sentence in the last call of an attention of this kind, if there is one."""
        found = [module for module, one in self.kinds.items() if one == kind]
        return self.calls[found[0]][-1][0] if found else None


@contextmanager
def capture_attention() -> Iterator[AttentionLog]:
    """Record the weights of every attention in this thread. Attention then runs in its explicit form, which is slower."""
    log = AttentionLog()
    token = _current.set(log)
    try:
        yield log
    finally:
        _current.reset(token)


def current_log() -> AttentionLog | None:
    """Return the log of this context, or None outside `capture_attention`."""
    return _current.get()

"""Capture attention weights.

>>> with capture_attention() as log:
...     model(batch)
>>> log.calls[model.decoder[0].cross_attention][0]      # the first call: one tensor [H, queries, keys] per sentence
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor, nn

_current: ContextVar[AttentionLog | None] = ContextVar("current_log", default=None)


class AttentionLog:
    """The weights of each attention module, by call: for each sentence [H, queries, keys]."""

    def __init__(self) -> None:
        self.calls: dict[nn.Module, list[list[Tensor]]] = {}
        self.gates: list[Tensor] = []  # p_gen of models that copy, by call: [sentences, queries]

    def add(self, attention: nn.Module, weights: Sequence[Tensor]) -> None:
        """Add the weights of one call, one tensor per sentence."""
        self.calls.setdefault(attention, []).append([one.detach() for one in weights])


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

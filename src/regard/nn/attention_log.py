"""Record attention weights: inside `capture_attention()` every attention computes its weights as in the paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor, nn

_current: ContextVar[AttentionLog | None] = ContextVar("current_log", default=None)


class AttentionLog:
    """The weights of each attention, call by call: for each sentence [H, queries, keys]."""

    def __init__(self) -> None:
        self.calls: dict[nn.Module, list[list[Tensor]]] = {}

    def add(self, attention: nn.Module, weights: Sequence[Tensor]) -> None:
        """What an attention gave to each sentence of a batch."""
        self.calls.setdefault(attention, []).append([one.detach() for one in weights])


@contextmanager
def capture_attention() -> Iterator[AttentionLog]:
    """A context in which attention is written down, in this thread."""
    seen = AttentionLog()
    token = _current.set(seen)
    try:
        yield seen
    finally:
        _current.reset(token)


def current_log() -> AttentionLog | None:
    """Where to write weights down; None where nobody looks."""
    return _current.get()

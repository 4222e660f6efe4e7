"""How much one request, and all of them together, may ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Everything that comes over the network is held to these."""

    body_bytes: int = 2_000_000
    text_characters: int = 100_000  # of all texts of a request
    texts: int = 1000  # of a request
    beam: int = 16
    seconds: float = 120.0  # that a request may take
    body_seconds: float = 20.0  # that its body may take to arrive
    queued_sentences: int = 4096  # waiting; more are refused for now
    batch_sentences: int = 64
    batch_gap: float = 0.008  # seconds without another sentence after which a batch is full enough
    batch_wait: float = 0.05  # seconds that the first sentence of a batch waits at most
    streamed_characters: int = 5000
    looked_tokens: int = 512  # of a sentence whose attention is asked for
    prefix_tokens: int = 512

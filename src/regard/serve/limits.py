"""Limits on what one request, one client, and all clients together may use.

Work is measured in units of cost (`sentence_cost`): the cost of a sentence whose output reaches its maximum length. A
Neoverse N1 core processes at least 5,000 to 10,000 units per second. Ordinary sentences end early and take about a sixth
of their cost.
"""

from __future__ import annotations

from dataclasses import dataclass

STEP_ROWS = 4  # the fixed cost of a search step, in rows
LONG_ATTENTION = 512  # tokens at which attention costs as much as everything else
PER_SENTENCE = 200  # cost of a sentence apart from the model


@dataclass(frozen=True)
class Limits:
    """The limits on everything that arrives over the network."""

    # What a request may contain
    body_bytes: int = 2_000_000
    text_characters: int = 100_000  # in all texts of a request
    texts: int = 1000  # per request
    sentences: int = 4096  # per request
    sentence_tokens: int = 256  # longer sentences are split
    beam: int = 16
    max_extra: int = 1000
    iterations: int = 100
    streamed_characters: int = 5000
    look_characters: int = 4096  # in the sentence of a look request
    look_tokens: int = 256  # in the sentence of a look request
    prefix_tokens: int = 256
    look_output_tokens: int = 384  # longer outputs are truncated

    # Cost
    sentence_cost: int = 50_000
    request_cost: int = 3_000_000
    client_cost: int = 6_000_000  # of all pending requests of one client
    total_cost: int = 20_000_000  # of all pending requests

    # Batches
    batch_sentences: int = 64
    batch_cost: int = 45_000
    long_batch_cost: int = 20_000  # of batches of long sentences
    bulk_batch_cost: int = 8_000  # share of bulk requests in a batch after an interactive request
    short_cost: int = 3_000  # sentences that cost more are long and may not occupy all workers
    interactive_cost: int = 16_000  # requests that cost more are bulk
    interactive_seconds: float = 10.0  # for which bulk requests are limited after an interactive one
    batch_gap: float = 0.008  # seconds without a new sentence after which a batch starts
    batch_wait: float = 0.05  # seconds after which a batch starts in any case

    # Time
    seconds: float = 120.0  # for a request
    body_seconds: float = 20.0  # for the body to arrive
    drain_seconds: float = 30.0  # for accepted requests to finish after SIGTERM

    # Connections
    requests: int = 512  # concurrent
    connections: int = 1000
    address_connections: int = 128  # per address
    header_bytes: int = 65_536
    header_seconds: float = 10.0  # for the headers of a request to arrive
    idle_seconds: int = 20  # between two requests of a connection
    write_seconds: float = 30.0  # for a client to read what was sent


def sentence_cost(source_tokens: int, output_tokens: int, *, rows: int, passes: int = 1) -> int:
    """Return the worst-case cost of a sentence with `rows` hypotheses, each refined `passes` times."""
    tokens = source_tokens + output_tokens
    computed = rows * tokens * passes + STEP_ROWS * tokens
    return PER_SENTENCE + int(computed * (1 + tokens / LONG_ATTENTION))

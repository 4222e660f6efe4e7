"""How much one request, one client, and all of them together may ask for.

Work is measured in units of cost (`sentence_cost`): what a sentence takes if its output is as long as it may become. A
Neoverse N1 core does 5,000 to 10,000 units per second at worst; everyday sentences end early and take about a sixth of
their cost.
"""

from __future__ import annotations

from dataclasses import dataclass

STEP_ROWS = 4  # rows that the fixed cost of a step is worth
LONG_ATTENTION = 512  # tokens at which attention costs as much as everything else
PER_SENTENCE = 200  # units for what a sentence costs apart from the model


@dataclass(frozen=True)
class Limits:
    """Everything that comes over the network is held to these."""

    # What a request may contain
    body_bytes: int = 2_000_000
    text_characters: int = 100_000  # of all texts of a request
    texts: int = 1000  # of a request
    sentences: int = 4096  # of a request
    sentence_tokens: int = 256  # longer sentences are split
    beam: int = 16
    max_extra: int = 1000
    iterations: int = 100
    streamed_characters: int = 5000
    looked_characters: int = 4096  # of a sentence whose attention is asked for
    looked_tokens: int = 256  # likewise
    prefix_tokens: int = 256
    looked_output: int = 384  # tokens that a look writes at most

    # What it may cost
    sentence_cost: int = 50_000
    request_cost: int = 3_000_000
    client_cost: int = 6_000_000  # waiting and being translated, of one client
    total_cost: int = 20_000_000  # of all clients

    # What is translated together
    batch_sentences: int = 64
    batch_cost: int = 45_000
    long_batch_cost: int = 20_000  # of sentences that are not short
    bulk_batch_cost: int = 8_000  # of bulk requests, while there are interactive ones
    short_cost: int = 3_000  # sentences that cost more are long: they may not occupy all workers
    interactive_cost: int = 16_000  # requests that cost more are bulk
    interactive_seconds: float = 10.0  # that bulk requests stand back after an interactive one
    batch_gap: float = 0.008  # seconds without another sentence after which a batch is full enough
    batch_wait: float = 0.05  # seconds that the first sentence of a batch waits at most

    # What it may take
    seconds: float = 120.0  # that a request may take
    body_seconds: float = 20.0  # that its body may take to arrive
    drain_seconds: float = 30.0  # that accepted work may take after SIGTERM

    # Connections
    requests: int = 512  # at once; more are refused for now
    connections: int = 1000
    address_connections: int = 128  # of one address
    header_bytes: int = 65_536
    header_seconds: float = 10.0  # that the headers of a request may take to arrive
    idle_seconds: int = 20  # between two requests
    write_seconds: float = 30.0  # that a client may take to read what waits for it


def sentence_cost(source_tokens: int, output_tokens: int, *, rows: int, passes: int = 1) -> int:
    """What a sentence costs at worst: `rows` hypotheses of so many tokens, gone over `passes` times."""
    tokens = source_tokens + output_tokens
    computed = rows * tokens * passes + STEP_ROWS * tokens
    return PER_SENTENCE + int(computed * (1 + tokens / LONG_ATTENTION))

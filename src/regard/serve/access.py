"""Who may use the server, and how much: API keys, host names, cross-site requests, and limits on every request.

Work is measured in units of cost (`sentence_cost`): the cost of a sentence whose output reaches its maximum length. A
Neoverse N1 core processes at least 5,000 to 10,000 units per second. Ordinary sentences end early and take about a sixth
of their cost.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from regard.errors import ConfigError

STEP_ROWS = 4  # the fixed cost of a search step, in rows
LONG_ATTENTION = 512  # tokens at which attention costs as much as everything else
PER_SENTENCE = 200  # cost of a sentence apart from the model
KEYS_VARIABLE = "REGARD_API_KEYS"  # is not passed on to workers
LOOPBACK = ("localhost", "127.0.0.1", "::1")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
OWN_SITE = ("same-origin", "none")  # values of Sec-Fetch-Site for our own page and for addresses typed by the user


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
    terms: int = 200  # of a glossary, and parts of the text that are kept
    term_characters: int = 200
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
    shared_long_cost: int = 30_000  # of long sentences that a worker with the engine translates next to others
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


@dataclass(frozen=True)
class Access:
    """The rules that a request must pass before it is processed."""

    keys: Sequence[str] = ()  # a request must have one of them; empty: no key is required
    hosts: Sequence[str] = ()  # allowed names in the Host header; empty: all are allowed
    public_metrics: bool = False

    def key_number(self, given: str | None) -> int | None:
        """Return the index of a key; None if it is unknown."""
        found = None
        # Compare with all keys, so that the time does not depend on which one matches.
        for number, key in enumerate(self.keys):
            if secrets.compare_digest(key.encode(), (given or "").encode("utf-8", "replace")):
                found = number
        return found

    def refusal(self, method: str, headers: Mapping[bytes, bytes]) -> str | None:
        """Return why a request is refused for its host name or its origin; None if it is allowed."""
        host = headers.get(b"host", b"").decode("latin-1")
        if self.hosts and host_name(host) not in self.hosts:
            return f"the host name {host_name(host)[:80]!r} is not allowed; allow it with --allow-host"
        if method not in SAFE_METHODS and _is_cross_site(headers, host):
            return "cross-site requests are not allowed"
        return None


def _is_cross_site(headers: Mapping[bytes, bytes], host: str) -> bool:
    """Return whether a browser sends this for a page of another site. Programs other than browsers set no such header."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site.decode("latin-1").lower() not in OWN_SITE
    origin = headers.get(b"origin")
    return origin is not None and urlsplit(origin.decode("latin-1")).netloc.lower() != host.lower()


def host_name(host: str) -> str:
    """Return the name in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")


def allowed_hosts(given: Sequence[str], listening: str) -> list[str]:
    """Return the given names and those of loopback; on loopback only its own, against DNS rebinding."""
    if given:
        return [*(host_name(one) for one in given), *LOOPBACK]
    return list(LOOPBACK) if is_loopback(listening) else []


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def client_address(address: str) -> str:
    """Return what counts as one client: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


def read_keys(given: Sequence[str], file: Path | None, environment: Mapping[str, str]) -> list[str]:
    """Return the API keys from the command line, a file and the environment.

    An empty source is refused, because a server without keys is open to everybody.
    """
    if not all(key.strip() for key in given):
        raise ConfigError("--api-key is empty (perhaps an unset variable); give a key, or leave the option out")
    keys = [key.strip() for key in given]
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the key file {file} cannot be read ({error}); write one key per line") from error
        if not any(line.strip() for line in lines):
            raise ConfigError(f"the key file {file} has no keys; write one per line")
        keys += [line.strip() for line in lines if line.strip()]
    if KEYS_VARIABLE in environment:
        found = [key.strip() for key in environment[KEYS_VARIABLE].split(",") if key.strip()]
        if not found:
            raise ConfigError(f"{KEYS_VARIABLE} is set but has no keys; separate keys by commas, or unset it")
        keys += found
    return keys

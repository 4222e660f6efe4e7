"""Access control: API keys, allowed host names, and cross-site requests."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from regard.errors import ConfigError
from regard.serve.worker_process import KEYS_VARIABLE

LOOPBACK = ("localhost", "127.0.0.1", "::1")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
OWN_SITE = ("same-origin", "none")  # values of Sec-Fetch-Site for our own page and for addresses typed by the user


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

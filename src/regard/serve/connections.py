"""Limits on client connections: how many, and how long they may be idle, slow or half-open.

Built on uvicorn's protocol. `middleware` handles request bodies that are too slow.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from regard.serve.access import Limits, client_address
from regard.serve.middleware import HEALTH, send_error

SPARE = 16  # connections beyond the limits, which get only /health
SPARE_SECONDS = 2.0  # for such a connection to send its request


class ConnectionLimiter:
    """All open connections, and whether another one is accepted."""

    def __init__(self, limits: Limits, *, proxies: tuple[str, ...] = ()) -> None:
        self.limits = limits
        self.proxies = proxies  # addresses shared by many clients
        self.open: dict[Connection, None] = {}  # oldest first
        self.per_address: Counter[str] = Counter()
        self.spare: dict[Connection, None] = {}

    def add(self, connection: Connection, address: str) -> bool:
        """Add a connection, closing an idle one if the limits are reached; return whether it got a regular place."""
        address_full = address not in self.proxies and self.per_address[address] >= self.limits.address_connections
        if address_full or len(self.open) >= self.limits.connections:
            idle = [one for one in self.open if one.is_idle and (not address_full or one.address == address)]
            if not idle:
                self._add_spare(connection)
                return False
            self.remove(oldest := min(idle, key=lambda one: one.last_active))
            oldest.transport.abort()
        self.open[connection] = None
        self.per_address[address] += 1
        return True

    def _add_spare(self, connection: Connection) -> None:
        if len(self.spare) >= SPARE:
            oldest = next(iter(self.spare))
            del self.spare[oldest]
            oldest.transport.abort()
        self.spare[connection] = None

    def remove(self, connection: Connection) -> None:
        self.spare.pop(connection, None)
        if connection in self.open:
            del self.open[connection]
            self.per_address[connection.address] -= 1
            if not self.per_address[connection.address]:
                del self.per_address[connection.address]


class Connection(HttpToolsProtocol):
    """One connection with limits on time and header size."""

    def __init__(self, *arguments: Any, limiter: ConnectionLimiter, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.limiter, self.limits = limiter, limiter.limits
        self.address, self.last_active = "", time.monotonic()
        # Bytes received of incomplete headers; None while no headers are expected.
        self._header_bytes: int | None = None
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress and the client has read everything."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered and self._write_timer is None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.address = client_address(self.client[0] if self.client else "")
        seconds = self.limits.header_seconds
        if not self.limiter.add(self, self.address):
            self.app, seconds = only_health, SPARE_SECONDS
        self._expect_headers(seconds)

    def connection_lost(self, error: Exception | None) -> None:
        self.limiter.remove(self)
        for timer in (self._header_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self.last_active = time.monotonic()
        super().data_received(data)
        if self._header_bytes is not None:
            self._header_bytes += len(data)
            if self._header_bytes > self.limits.header_bytes:
                self._refuse(431, "the request headers are too large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._header_bytes is None:  # a further request on this connection
            self._expect_headers(self.limits.header_seconds)

    def _expect_headers(self, seconds: float) -> None:
        """Refuse the request unless its headers are complete after some seconds."""
        self._header_bytes = 0
        self._header_timer = self.loop.call_later(
            seconds, self._refuse, 408, "the request headers did not arrive in time"
        )

    def on_headers_complete(self) -> None:
        self._header_bytes = None
        if self._header_timer is not None:
            self._header_timer.cancel()
        super().on_headers_complete()

    def _refuse(self, status: int, problem: str) -> None:
        if self.transport.is_closing():
            return
        if self._header_bytes == 0:  # no request was started
            self.transport.close()
            return
        body = json.dumps({"error": problem}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        lines = [name + b": " + value + b"\r\n" for name, value in [*self.server_state.default_headers, *headers]]
        self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", body]))
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


async def only_health(scope: Any, receive: Any, send: Any) -> None:
    """Answer only /health; the application for connections beyond the limits."""
    if scope["type"] == "http" and scope["path"] == HEALTH:
        body = b'{"status":"ok"}'
        headers = [(b"content-type", b"application/json"), (b"content-length", b"15"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})
    else:
        await send_error(send, 503, "too many open connections; please retry")

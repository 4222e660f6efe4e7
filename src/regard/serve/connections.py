"""Connections of clients: how many there may be, and how long they may be idle, slow or half-open.

Built on uvicorn's protocol. A request body that is too slow is `guard`'s.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from regard.serve.access import client_address
from regard.serve.guard import ALWAYS, answer
from regard.serve.limits import Limits

SPARE = 16  # connections beyond the limits, on which only /health is answered
SPARE_SECONDS = 2.0  # that such a connection may take to send its request


class Connections:
    """All open connections."""

    def __init__(self, limits: Limits, *, proxies: tuple[str, ...] = ()) -> None:
        self.limits = limits
        self.proxies = proxies  # addresses that many clients share
        self.open: dict[Connection, None] = {}  # oldest first
        self.of_address: Counter[str] = Counter()
        self.spare: dict[Connection, None] = {}

    def add(self, connection: Connection, address: str) -> bool:
        """Whether there is room for another; makes room by closing an idle one if it can."""
        own = address not in self.proxies and self.of_address[address] >= self.limits.address_connections
        if own or len(self.open) >= self.limits.connections:
            idle = [one for one in self.open if one.is_idle and (not own or one.address == address)]
            if not idle:
                self._add_spare(connection)
                return False
            self.remove(oldest := min(idle, key=lambda one: one.last_active))
            oldest.transport.abort()
        self.open[connection] = None
        self.of_address[address] += 1
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
            self.of_address[connection.address] -= 1
            if not self.of_address[connection.address]:
                del self.of_address[connection.address]


class Connection(HttpToolsProtocol):
    """One connection, with limits."""

    def __init__(self, *arguments: Any, connections: Connections, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.all_connections, self.limits = connections, connections.limits
        self.address, self.last_active = "", time.monotonic()
        self._head_bytes: int | None = (
            None  # received of a request whose headers are not complete; None between requests
        )
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered and nothing waits to be read by the client."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered and self._write_timer is None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.address = client_address(self.client[0] if self.client else "")
        seconds = self.limits.header_seconds
        if not self.all_connections.add(self, self.address):
            self.app, seconds = only_health, SPARE_SECONDS
        self._expect_head(seconds)

    def connection_lost(self, error: Exception | None) -> None:
        self.all_connections.remove(self)
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self.last_active = time.monotonic()
        super().data_received(data)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.header_bytes:
                self._refuse(431, "the headers are too large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._head_bytes is None:  # a further request of this connection
            self._expect_head(self.limits.header_seconds)

    def _expect_head(self, seconds: float) -> None:
        """The headers of a request must be complete after so many seconds."""
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(seconds, self._refuse, 408, "the headers took too long to arrive")

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        if self._head_timer is not None:
            self._head_timer.cancel()
        super().on_headers_complete()

    def _refuse(self, status: int, problem: str) -> None:
        if self.transport.is_closing():
            return
        if self._head_bytes == 0:  # it has not asked for anything
            self.transport.close()
            return
        body = json.dumps({"error": problem}).encode()
        own = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        lines = [name + b": " + value + b"\r\n" for name, value in [*self.server_state.default_headers, *own]]
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
    """What is answered when there are too many connections."""
    if scope["type"] == "http" and scope["path"] == ALWAYS:
        body = b'{"status":"ok"}'
        headers = [(b"content-type", b"application/json"), (b"content-length", b"15"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})
    else:
        await answer(send, 503, "too many connections are open already")

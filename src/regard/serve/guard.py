"""The outermost layer of the application: refuses what is not to be looked at, limits bodies, counts answers."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from starlette.exceptions import HTTPException

from regard.serve.access import Access
from regard.serve.limits import Limits
from regard.serve.metrics import Metrics

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Sent with every answer, also with those that the HTTP server gives by itself (`uvicorn.Config.headers`).
HEADERS = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
]
CLOSE = {"Connection": "close"}  # what is left of such a request is not waited for
PROBES = ("/health", "/ready")  # whose callers know no name of ours
ALWAYS = "/health"  # is answered however busy the server is


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: Any, *, limits: Limits, access: Access, metrics: Metrics) -> None:
        self.app, self.limits, self.access, self.metrics = app, limits, access, metrics
        self.requests = 0  # being answered

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def counted(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.requests += 1
        try:
            if refusal := self._refusal(scope):
                await answer(counted, *refusal)
            else:
                await self.app(scope, self._limited(receive, began), counted)
        finally:
            self.requests -= 1
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.add(route, status, time.monotonic() - began)

    def _refusal(self, scope: Any) -> tuple[int, str] | None:
        """Status and reason, if a request is refused before anything else is done."""
        if self.requests > self.limits.requests and scope["path"] != ALWAYS:
            return 503, "the server is answering too many requests already"
        if scope["path"] not in PROBES and (reason := self.access.refusal(scope["method"], dict(scope["headers"]))):
            return 403, reason
        return None

    def _limited(self, receive: Any, began: float) -> Any:
        """Receive a body that is neither too large nor too slow; after it, the end of the connection."""
        taken, complete = 0, False

        async def limited() -> Any:
            nonlocal taken, complete
            if complete:
                return await receive()
            left = began + self.limits.body_seconds - time.monotonic()
            try:
                message = await asyncio.wait_for(receive(), max(left, 0.01))
            except TimeoutError as error:
                raise HTTPException(408, "the request took too long to arrive", headers=CLOSE) from error
            taken += len(message.get("body", b""))
            if taken > self.limits.body_bytes:
                raise HTTPException(413, f"the body is larger than {self.limits.body_bytes:,} bytes", headers=CLOSE)
            complete = not message.get("more_body", False)
            return message

        return limited


async def answer(send: Any, status: int, problem: str) -> None:
    """Send one sentence of JSON, and close the connection."""
    body = json.dumps({"error": problem}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    if status == 503:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})

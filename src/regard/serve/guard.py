"""What stands between the network and us: bodies that are too large or too slow, headers for browsers, counts."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.exceptions import HTTPException

from regard.serve.limits import Limits
from regard.serve.metrics import Metrics

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
CLOSE = {"Connection": "close"}  # what is left of such a request is not waited for
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: Any, *, limits: Limits, metrics: Metrics) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def counted(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *HEADERS]}
            await send(message)

        try:
            await self.app(scope, self._limited(receive, began), counted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.add(route, status, time.monotonic() - began)

    def _limited(self, receive: Any, began: float) -> Any:
        """Receives a body that is neither too large nor too slow; after it, the end of the connection whenever that is."""
        taken, whole = 0, False

        async def limited() -> Any:
            nonlocal taken, whole
            if whole:
                return await receive()
            left = began + self.limits.body_seconds - time.monotonic()
            try:
                message = await asyncio.wait_for(receive(), max(left, 0.01))
            except TimeoutError as error:
                raise HTTPException(408, "the request took too long to arrive", headers=CLOSE) from error
            taken += len(message.get("body", b""))
            if taken > self.limits.body_bytes:
                raise HTTPException(413, f"the body is larger than {self.limits.body_bytes:,} bytes", headers=CLOSE)
            whole = not message.get("more_body", False)
            return message

        return limited

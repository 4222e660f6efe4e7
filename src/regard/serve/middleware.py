"""The outermost ASGI middleware: refuses requests, limits bodies, and counts responses for Prometheus."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException

from regard.serve.access import Access, Limits

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Sent with every response, including those that uvicorn creates by itself (`uvicorn.Config.headers`).
HEADERS = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
]
CLOSE = {"Connection": "close"}  # the rest of such a request is not read
HEALTH = "/health"  # is answered even under overload
PROBES = (HEALTH, "/ready")  # allowed with any Host header
BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # upper bounds of the histogram, in seconds


class Metrics:
    """Counts and durations of requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests: Counter[tuple[str, int]] = Counter()
        self.buckets: Counter[float] = Counter()
        self.total_seconds, self.count = 0.0, 0

    def add(self, route: str, status: int, seconds: float) -> None:
        """Count one request that has been answered."""
        with self._lock:
            self.requests[route, status] += 1
            self.total_seconds += seconds
            self.count += 1
            for end in BUCKETS:
                if seconds <= end:
                    self.buckets[end] += 1

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return all metrics and the given gauges in Prometheus' text format."""
        with self._lock:
            lines = ["# TYPE regard_requests_total counter"]
            lines += [
                f'regard_requests_total{{route="{route}",status="{status}"}} {count}'
                for (route, status), count in sorted(self.requests.items())
            ]
            lines.append("# TYPE regard_request_seconds histogram")
            lines += [f'regard_request_seconds_bucket{{le="{end}"}} {self.buckets[end]}' for end in BUCKETS]
            lines.append(f'regard_request_seconds_bucket{{le="+Inf"}} {self.count}')
            lines += [f"regard_request_seconds_sum {self.total_seconds}", f"regard_request_seconds_count {self.count}"]
        for name, value in gauges.items():
            lines += [f"# TYPE regard_{name} gauge", f"regard_{name} {value}"]
        return "\n".join([*lines, ""])


class GuardMiddleware:
    """Applies the access rules and limits to an ASGI application."""

    def __init__(self, app: Any, *, limits: Limits, access: Access, metrics: Metrics) -> None:
        self.app, self.limits, self.access, self.metrics = app, limits, access, metrics
        self.active_requests = 0

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

        self.active_requests += 1
        try:
            if refusal := self._refusal(scope):
                await send_error(counted, *refusal)
            else:
                await self.app(scope, self._limited(receive, began), counted)
        finally:
            self.active_requests -= 1
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.add(route, status, time.monotonic() - began)

    def _refusal(self, scope: Any) -> tuple[int, str] | None:
        """Return the status and the reason of a refusal; None if the request is allowed."""
        if self.active_requests > self.limits.requests and scope["path"] != HEALTH:
            return 503, "too many concurrent requests; please retry"
        if scope["path"] not in PROBES and (reason := self.access.refusal(scope["method"], dict(scope["headers"]))):
            return 403, reason
        return None

    def _limited(self, receive: Any, began: float) -> Any:
        """Return a `receive` that raises HTTPException for bodies that are too large or too slow."""
        received, complete = 0, False

        async def limited() -> Any:
            nonlocal received, complete
            if complete:
                return await receive()
            left = began + self.limits.body_seconds - time.monotonic()
            try:
                async with asyncio.timeout(max(left, 0.01)):
                    message = await receive()
            except TimeoutError as error:
                raise HTTPException(408, "the request body did not arrive in time", headers=CLOSE) from error
            received += len(message.get("body", b""))
            if received > self.limits.body_bytes:
                raise HTTPException(
                    413, f"the request body is larger than {self.limits.body_bytes:,} bytes", headers=CLOSE
                )
            complete = not message.get("more_body", False)
            return message

        return limited


async def send_error(send: Any, status: int, problem: str) -> None:
    """Send an error as JSON and close the connection."""
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

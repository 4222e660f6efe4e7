"""Who a request comes from, how long it may take, and whether anybody still waits for the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from fastapi import Request
from starlette.exceptions import HTTPException

T = TypeVar("T")
GONE = 499  # what nginx logs for clients that close the connection before they are answered


@dataclass(frozen=True)
class Caller:
    """One request, as far as waiting is concerned."""

    request: Request
    client: str  # who shares fairly with others
    deadline: float  # by time.monotonic

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """The result; it is cancelled at the deadline and when the client closes the connection."""
        result, gone = asyncio.ensure_future(awaitable), asyncio.ensure_future(self._disconnected())
        try:
            await asyncio.wait({result, gone}, timeout=self.left, return_when=asyncio.FIRST_COMPLETED)
            if result.done():
                return result.result()
            if gone.done():
                raise HTTPException(GONE, "the client closed the connection")
            raise HTTPException(503, "this took too long", headers={"Retry-After": "5"})
        finally:
            gone.cancel()
            result.cancel()

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self.deadline - time.monotonic())

    async def _disconnected(self) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass

"""A translation while it is written, as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.exceptions import HTTPException

from regard.decoding.hypotheses import SearchOptions
from regard.errors import RegardError
from regard.serve.caller import Caller
from regard.serve.models import Served
from regard.serve.sentences import Cut
from regard.serve.service import Service
from regard.serve.work import Sentence, Work


@dataclass
class Stream:
    """One text on its way: sentence by sentence, each as one task of a worker."""

    service: Service
    caller: Caller
    served: Served
    options: SearchOptions
    cut: Cut
    sentences: list[Sentence]
    done: list[str] = field(default_factory=list)

    async def events(self) -> AsyncIterator[str]:
        """One event after each token, with all that is written; in the end one with `"done": true`."""
        try:
            for sentence in self.sentences:
                async for text in self._written(sentence):
                    yield _event({"text": self._so_far(text)})
            yield _event({"text": self.cut.joined(self.done), "done": True})
        except HTTPException as problem:
            yield _event({"error": str(problem.detail), "done": True})
        except RegardError as problem:
            yield _event({"error": str(problem), "done": True})

    async def _written(self, sentence: Sentence) -> AsyncIterator[str]:
        """The text of one sentence after each token."""
        loop = asyncio.get_running_loop()
        heard: asyncio.Queue[str | None] = asyncio.Queue()

        def tell(text: str | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(heard.put_nowait, text)

        work = Work(
            self.caller.client,
            self.served.name,
            self.options,
            [sentence],
            self.caller.deadline,
            "stream",
            on_partial=tell,
        )
        running = asyncio.ensure_future(self.service.run(self.caller, work))
        running.add_done_callback(lambda _: heard.put_nowait(None))
        try:
            while (text := await heard.get()) is not None:
                yield text
            (written,) = await running
            self.done.append(written)
        finally:
            running.cancel()

    def _so_far(self, text: str) -> str:
        return "".join(space + one for space, one in zip(self.cut.spaces, [*self.done, text], strict=False))


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"

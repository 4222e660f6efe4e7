"""Streaming: the translation so far after every token, as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.exceptions import HTTPException

from regard.decoding.hypotheses import SearchOptions
from regard.errors import RegardError
from regard.serve.jobs import Sentence, TranslationJob
from regard.serve.models import ServedModel
from regard.serve.sentences import SplitText
from regard.serve.service import RequestContext, Service


@dataclass
class TranslationStream:
    """One text, translated sentence by sentence; each sentence is one job."""

    service: Service
    context: RequestContext
    served: ServedModel
    options: SearchOptions
    split_text: SplitText
    sentences: list[Sentence]
    done: list[str] = field(default_factory=list)  # finished translations

    async def events(self) -> AsyncIterator[str]:
        """Yield an event with the text so far after each token, and a last one with `"done": true`."""
        try:
            for sentence in self.sentences:
                async for text in self._partial_texts(sentence):
                    yield _event({"text": self._text_so_far(text)})
            yield _event({"text": self.split_text.join(self.done), "done": True})
        except HTTPException as problem:
            yield _event({"error": str(problem.detail), "done": True})
        except RegardError as problem:
            yield _event({"error": str(problem), "done": True})

    async def _partial_texts(self, sentence: Sentence) -> AsyncIterator[str]:
        """Yield the translation of one sentence after each token."""
        loop = asyncio.get_running_loop()
        updates: asyncio.Queue[str | None] = asyncio.Queue()  # None: the job is done

        def on_partial(text: str) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(updates.put_nowait, text)

        job = TranslationJob(
            self.context.client,
            self.served.name,
            self.options,
            [sentence],
            self.context.deadline,
            "stream",
            on_partial=on_partial,
        )
        running = asyncio.ensure_future(self.service.run(self.context, job))
        running.add_done_callback(lambda _: updates.put_nowait(None))
        try:
            while (text := await updates.get()) is not None:
                yield text
            (translation,) = await running
            self.done.append(translation)
        finally:
            running.cancel()

    def _text_so_far(self, text: str) -> str:
        return "".join(space + one for space, one in zip(self.split_text.spaces, [*self.done, text], strict=False))


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"

"""What requests share: the models, the limits, the keys, and how a translation is waited for."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from starlette.exceptions import HTTPException

from regard.decoding.hypotheses import SearchOptions
from regard.decoding.translator import Translation
from regard.serve.engine import Closed, Engine, QueueFull
from regard.serve.limits import Limits
from regard.serve.metrics import Metrics
from regard.serve.models import Served
from regard.serve.sentences import Cut
from regard.serve.worker import WorkerEnded

SHORT = 1000  # characters that are cut into sentences at once, and not by another thread


@dataclass
class Service:
    """What requests share."""

    models: dict[str, Served]
    engine: Engine
    limits: Limits
    keys: list[str]  # one of which a request must bring, where there are any
    metrics: Metrics = field(default_factory=Metrics)

    def find(self, name: str | None) -> Served:
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise HTTPException(404, f"there is no model {name[:80]!r}; there are {', '.join(self.models)}")
        return self.models[name]

    def check_key(self, given: str | None) -> None:
        if self.keys and not any(secrets.compare_digest(key.encode(), _bytes(given)) for key in self.keys):
            raise HTTPException(401, "a valid API key is needed")

    async def wait(self, futures: list[Future[Any]]) -> list[Any]:
        """Their results, within the time that a request has."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                return list(await asyncio.gather(*map(asyncio.wrap_future, futures)))
        except TimeoutError as error:
            raise HTTPException(503, "this took too long", headers={"Retry-After": "5"}) from error
        except WorkerEnded as error:
            raise HTTPException(503, "who translates has died; try again", headers={"Retry-After": "1"}) from error

    async def translate(
        self, served: Served, texts: list[str], options: SearchOptions
    ) -> list[tuple[Cut, list[list[Translation]]]]:
        """Each text's sentences and their translations."""
        characters = sum(map(len, texts))
        if characters > self.limits.text_characters:
            raise HTTPException(413, f"the texts have more than {self.limits.text_characters:,} characters together")
        if characters <= SHORT:
            cuts = [served.cut(text) for text in texts]
        else:
            cuts = await asyncio.to_thread(lambda: [served.cut(text) for text in texts])
        sentences = [sentence for one in cuts for sentence in one.sentences]
        if len(sentences) > self.limits.queued_sentences:
            raise HTTPException(413, f"the texts have more than {self.limits.queued_sentences:,} sentences together")
        batches = await self.wait(taken(lambda: self.engine.submit(served.name, sentences, options)))
        found = iter([translations for batch in batches for translations in batch])
        return [(one, [next(found) for _ in one.sentences]) for one in cuts]

    async def call(self, function: Callable[[], Any]) -> Any:
        """What a function gives that uses a model."""
        (found,) = await self.wait(taken(lambda: [self.engine.call(function)]))
        return found


def _bytes(given: str | None) -> bytes:
    return (given or "").encode("utf-8", "replace")


def taken(submit: Callable[[], list[Future[Any]]]) -> list[Future[Any]]:
    try:
        return submit()
    except QueueFull as error:
        raise HTTPException(503, "too much is waiting already", headers={"Retry-After": "1"}) from error
    except Closed as error:
        raise HTTPException(503, "the server is going down", headers={"Retry-After": "5"}) from error

"""What requests share: the models, the limits, the keys, and how work is submitted and waited for."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request
from starlette.exceptions import HTTPException

from regard.decoding.hypotheses import SearchOptions
from regard.decoding.translator import Translation
from regard.explain.trace import MAX_CONTINUED_TOKENS
from regard.serve.access import Access, client_address
from regard.serve.caller import Caller
from regard.serve.engine import ClientFull, Closed, Engine, QueueFull
from regard.serve.executor import TaskFailed
from regard.serve.limits import Limits
from regard.serve.metrics import Metrics
from regard.serve.models import Served
from regard.serve.sentences import Cut
from regard.serve.work import Sentence, Work
from regard.serve.worker_process import WorkerFailed

SHORT = 1000  # characters that are cut into sentences at once, and not by another thread


@dataclass
class Service:
    """What requests share."""

    models: dict[str, Served]
    engine: Engine
    limits: Limits
    access: Access
    metrics: Metrics = field(default_factory=Metrics)
    draining: bool = False  # SIGTERM has come; what was accepted is finished
    _cutting: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "cut"))

    def find(self, name: str | None) -> Served:
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise HTTPException(404, f"there is no model {name[:80]!r}; there are {', '.join(self.models)}")
        return self.models[name]

    def enter(self, request: Request, key: str | None = None) -> Caller:
        """Whose request this is: that of a key, which is needed where there are keys, or else of an address."""
        deadline = time.monotonic() + self.limits.seconds
        if self.access.keys:
            given = request.headers.get("authorization", "")
            number = self.access.key_number(key or given.removeprefix("Bearer "))
            if number is None:
                raise HTTPException(401, "a valid API key is needed")
            return Caller(request, f"key {number}", deadline)
        return Caller(request, client_address(request.client.host if request.client else ""), deadline)

    async def prepare(
        self, caller: Caller, served: Served, texts: list[str], options: SearchOptions
    ) -> tuple[list[Cut], list[Sentence]]:
        """The sentences of each text, and all of them with their costs; refuses what is too much."""
        characters = sum(map(len, texts))
        if characters > self.limits.text_characters:
            raise HTTPException(413, f"the texts have more than {self.limits.text_characters:,} characters together")

        def cut_and_price() -> tuple[list[Cut], list[Sentence]]:
            cuts = [served.cut(text, self.limits.sentence_tokens) for text in texts]
            if sum(len(one.sentences) for one in cuts) > self.limits.sentences:
                raise HTTPException(413, f"the texts have more than {self.limits.sentences:,} sentences together")
            return cuts, self.priced(served, [sentence for one in cuts for sentence in one.sentences], options)

        if characters <= SHORT:
            return cut_and_price()
        return await caller.wait(asyncio.get_running_loop().run_in_executor(self._cutting, cut_and_price))

    def priced(self, served: Served, sentences: list[str], options: SearchOptions) -> list[Sentence]:
        """The sentences with their costs; refuses what costs too much."""
        priced = [served.priced(sentence, options) for sentence in sentences]
        if max((one.cost for one in priced), default=0) > self.limits.sentence_cost:
            raise HTTPException(
                413, "a sentence costs too much with these options; lower beam, max_extra or iterations"
            )
        if sum(one.cost for one in priced) > self.limits.request_cost:
            raise HTTPException(
                413, "the request costs too much; send its texts in several, or lower beam or max_extra"
            )
        return priced

    async def translate(
        self, caller: Caller, served: Served, texts: list[str], options: SearchOptions
    ) -> list[tuple[Cut, list[list[Translation]]]]:
        """Each text's sentences and their translations."""
        cuts, sentences = await self.prepare(caller, served, texts, options)
        if not sentences:
            return [(one, []) for one in cuts]
        found = iter(await self.run(caller, Work(caller.client, served.name, options, sentences, caller.deadline)))
        return [(one, [next(found) for _ in one.sentences]) for one in cuts]

    async def look(
        self, caller: Caller, served: Served, text: str, options: SearchOptions, **arguments: Any
    ) -> dict[str, Any]:
        """How one sentence is translated, as the page shows it."""
        options = options.replace(max_length=self.limits.looked_output)
        (sentence,) = self.priced(served, [text], options)
        continued = MAX_CONTINUED_TOKENS if arguments["alternatives"] else 0
        sentence = Sentence(text, sentence.cost + min(continued, arguments["alternatives"] * sentence.cost))
        work = Work(caller.client, served.name, options, [sentence], caller.deadline, "look", arguments)
        (found,) = await self.run(caller, work)
        seen: dict[str, Any] = found
        return seen

    async def run(self, caller: Caller, work: Work) -> list[Any]:
        """The results; nobody computes them any more once the caller is gone."""
        self.submit(work)
        try:
            return await caller.wait(asyncio.wrap_future(work.future))
        except (TimeoutError, WorkerFailed, Closed, TaskFailed) as error:
            raise refusal(error) from error

    def submit(self, work: Work) -> None:
        try:
            self.engine.submit(work)
        except (ClientFull, QueueFull, Closed) as error:
            raise refusal(error) from error


PROBLEMS: dict[type[Exception], tuple[int, str, int]] = {
    ClientFull: (429, "you have too much waiting already", 5),
    QueueFull: (503, "too much is waiting already", 5),
    Closed: (503, "the server is shutting down", 5),
    TimeoutError: (503, "this took too long", 5),
    WorkerFailed: (503, "the translation workers failed repeatedly; please retry", 5),
}


def refusal(error: Exception) -> HTTPException:
    """What a client is answered for an error of the engine."""
    for kind, (status, text, seconds) in PROBLEMS.items():
        if isinstance(error, kind):
            return HTTPException(status, text, headers={"Retry-After": str(seconds)})
    return HTTPException(500, "something is wrong with the server")

"""What requests share: the models, the limits, the API keys, and how jobs are submitted and awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import Request
from starlette.exceptions import HTTPException

from regard.config import SearchOptions
from regard.decoding.requests import Request as TextRequest
from regard.decoding.translator import Translation
from regard.explain.limits import MAX_CONTINUED_TOKENS
from regard.serve.access import Access, Limits, client_address
from regard.serve.executor import TaskFailed
from regard.serve.fair_queue import Sentence, TranslationJob
from regard.serve.middleware import Metrics
from regard.serve.models import ServedModel
from regard.serve.scheduler import ClientLimitExceeded, QueueFull, Scheduler, SchedulerClosed
from regard.serve.worker_process import WorkerFailed
from regard.text.segmenter import SplitText

SHORT = 1000  # characters that are split on the event loop; longer texts, and those with demands, are split in a thread
CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that closes the connection before the response
TIMED_OUT = "the request timed out; please retry"
INTERNAL_ERROR = "internal server error"
NO_LANGUAGES = "none, because no recipe names them in data.train.languages; name a model instead, on /v1/translate"
T = TypeVar("T")
# From the sentences of a request to what their translations must have: fields of a `decoding.requests.Request`.
DemandsOf = Callable[[Sequence[str]], Sequence[Mapping[str, Any]]]


def no_demands(sentences: Sequence[str]) -> list[dict[str, Any]]:
    """Demand nothing of the translations."""
    return [{} for _ in sentences]


@dataclass(frozen=True)
class RequestContext:
    """One request: whose it is, and until when it must be answered."""

    request: Request
    client: str  # the unit of fair sharing
    deadline: float  # by time.monotonic

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Return the result; cancel it at the deadline or when the client closes the connection."""
        result, gone = asyncio.ensure_future(awaitable), asyncio.ensure_future(self._disconnected())
        try:
            await asyncio.wait({result, gone}, timeout=self.seconds_left, return_when=asyncio.FIRST_COMPLETED)
            if result.done():
                return result.result()
            if gone.done():
                raise HTTPException(CLIENT_CLOSED_REQUEST, "the client closed the connection")
            raise HTTPException(503, TIMED_OUT, headers={"Retry-After": "5"})
        finally:
            gone.cancel()
            result.cancel()

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    async def _disconnected(self) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass


@dataclass
class Service:
    """What requests share."""

    models: dict[str, ServedModel]
    scheduler: Scheduler
    limits: Limits
    access: Access
    metrics: Metrics = field(default_factory=Metrics)
    pivot: str | None = None  # the language through which others are translated, where no model has the pair
    draining: bool = False  # after SIGTERM, while accepted requests are finished
    _splitting: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "split"))

    def find_model(self, name: str | None, target: str | None = None) -> ServedModel:
        """Return the model of this name, or the first model if no name is given; with a target, the first one into it.

        The name of a run of several languages stands for all of its pairs.
        """
        named = [one for one in self.models.values() if name in (None, one.name, one.run or None)]
        if not named:
            raise HTTPException(404, f"there is no model {str(name)[:80]!r}; available: {', '.join(self.models)}")
        targets = dict.fromkeys(one.languages[1] for one in named if one.languages is not None)
        if target is not None:
            named = [one for one in named if one.languages is not None and one.languages[1] == target]
        if not named:
            into = ", ".join(targets) or NO_LANGUAGES
            raise HTTPException(404, f"there is no model into {str(target)[:20]!r}; available: {into}")
        if target is None and name is not None and name == named[0].run:
            raise HTTPException(422, f"{name} translates into {', '.join(targets)}; choose one of them with target")
        return named[0]

    def find_route(self, source: str, target: str) -> list[ServedModel]:
        """Return the model of a pair of languages, or two, by way of the pivot; raise HTTPException if there is none."""
        pairs = {one.languages: one for one in reversed(self.models.values()) if one.languages is not None}
        if (source, target) in pairs:
            return [pairs[source, target]]
        pivot = self.pivot
        if pivot is not None and source != target and (source, pivot) in pairs and (pivot, target) in pairs:
            return [pairs[source, pivot], pairs[pivot, target]]
        there = ", ".join("-".join(languages) for languages in self.language_pairs()) or NO_LANGUAGES
        raise HTTPException(400, f"there is no model for {source[:20]}-{target[:20]}; available: {there}")

    def language_pairs(self) -> list[tuple[str, str]]:
        """Return all pairs of languages that can be translated, those by way of the pivot last."""
        direct = list(dict.fromkeys(one.languages for one in self.models.values() if one.languages is not None))
        into = [source for source, target in direct if target == self.pivot]
        out_of = [target for source, target in direct if source == self.pivot]
        by_pivot = [(source, target) for source in into for target in out_of if source != target]
        return list(dict.fromkeys([*direct, *by_pivot]))

    def authorize(self, request: Request, key: str | None = None) -> RequestContext:
        """Check the API key, where keys are required; the client is the key, or else the address."""
        deadline = time.monotonic() + self.limits.seconds
        if self.access.keys:
            given = request.headers.get("authorization", "")
            number = self.access.key_number(key or given.removeprefix("Bearer "))
            if number is None:
                raise HTTPException(401, "a valid API key is required")
            return RequestContext(request, f"key {number}", deadline)
        return RequestContext(request, client_address(request.client.host if request.client else ""), deadline)

    async def prepare(
        self,
        context: RequestContext,
        served: ServedModel,
        texts: list[str],
        options: SearchOptions,
        demands: DemandsOf = no_demands,
    ) -> tuple[list[SplitText], list[Sentence]]:
        """Split texts into sentences with costs and demands; raise HTTPException if a limit is exceeded."""
        characters = sum(map(len, texts))
        if characters > self.limits.text_characters:
            raise HTTPException(413, f"the texts have more than {self.limits.text_characters:,} characters in total")

        def split() -> tuple[list[SplitText], list[Sentence]]:
            split_texts = [served.split(text, self.limits.sentence_tokens) for text in texts]
            if sum(len(one.sentences) for one in split_texts) > self.limits.sentences:
                raise HTTPException(413, f"the texts have more than {self.limits.sentences:,} sentences in total")
            sentences = [sentence for one in split_texts for sentence in one.sentences]
            wanted = demands(sentences)
            for text, more in zip(sentences, wanted, strict=True):
                if more:  # a worker that refuses it would refuse the sentences of others in the same batch too
                    served.translator.refuse(TextRequest(text, **more), options)
            return split_texts, self.with_costs(served, sentences, options, wanted)

        if characters <= SHORT and demands is no_demands:
            return split()
        return await context.wait(asyncio.get_running_loop().run_in_executor(self._splitting, split))

    def with_costs(
        self,
        served: ServedModel,
        texts: list[str],
        options: SearchOptions,
        demands: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[Sentence]:
        """Return the sentences with demands and costs; raise HTTPException if a cost limit is exceeded."""
        wanted = no_demands(texts) if demands is None else demands
        sentences = [served.with_cost(text, options, more) for text, more in zip(texts, wanted, strict=True)]
        if max((one.cost for one in sentences), default=0) > self.limits.sentence_cost:
            raise HTTPException(
                413,
                "a sentence costs too much with these options; lower beam, max_extra or iterations, or demand fewer phrases",
            )
        if sum(one.cost for one in sentences) > self.limits.request_cost:
            raise HTTPException(
                413, "the request costs too much; split it into several requests, or lower beam or max_extra"
            )
        return sentences

    async def translate(
        self,
        context: RequestContext,
        served: ServedModel,
        texts: list[str],
        options: SearchOptions,
        demands: DemandsOf = no_demands,
    ) -> list[tuple[SplitText, list[list[Translation]]]]:
        """Return each text's sentences and their translations. `demands` gives what the translations must have."""
        split_texts, sentences = await self.prepare(context, served, texts, options, demands)
        if not sentences:
            return [(one, []) for one in split_texts]
        job = TranslationJob(context.client, served.name, options, sentences, context.deadline)
        results = iter(await self.run(context, job))
        return [(one, [next(results) for _ in one.sentences]) for one in split_texts]

    async def look(
        self, context: RequestContext, served: ServedModel, text: str, options: SearchOptions, **arguments: Any
    ) -> dict[str, Any]:
        """Return the trace of one sentence's translation as JSON."""
        options = options.replace(max_length=self.limits.look_output_tokens)
        (sentence,) = self.with_costs(served, [text], options)
        continued = MAX_CONTINUED_TOKENS if arguments["alternatives"] else 0
        sentence = Sentence(text, sentence.cost + min(continued, arguments["alternatives"] * sentence.cost))
        job = TranslationJob(context.client, served.name, options, [sentence], context.deadline, "look", arguments)
        trace: dict[str, Any]
        (trace,) = await self.run(context, job)
        return trace

    async def run(self, context: RequestContext, job: TranslationJob) -> list[Any]:
        """Submit a job and return its results; the job is cancelled with the request."""
        try:
            self.scheduler.submit(job)
            return await context.wait(asyncio.wrap_future(job.future))
        except (ClientLimitExceeded, QueueFull, SchedulerClosed, TimeoutError, WorkerFailed, TaskFailed) as error:
            raise http_error(error) from error


# HTTP status, message, and value of Retry-After
ERRORS: dict[type[Exception], tuple[int, str, int]] = {
    ClientLimitExceeded: (429, "this client has too many pending sentences; please retry later", 5),
    QueueFull: (503, "the queue of the server is full; please retry later", 5),
    SchedulerClosed: (503, "the server is shutting down", 5),
    TimeoutError: (503, TIMED_OUT, 5),
    WorkerFailed: (503, "the translation workers failed repeatedly; please retry", 5),
}


def http_error(error: Exception) -> HTTPException:
    """Return the response for an error of the scheduler."""
    for kind, (status, text, seconds) in ERRORS.items():
        if isinstance(error, kind):
            return HTTPException(status, text, headers={"Retry-After": str(seconds)})
    return HTTPException(500, INTERNAL_ERROR)

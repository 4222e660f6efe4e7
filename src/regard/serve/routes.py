"""The routes of our API, streams as server-sent events, health checks and metrics.

`libretranslate` has the routes for clients of LibreTranslate.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, StreamingResponse
from starlette.exceptions import HTTPException

from regard.config import SearchOptions
from regard.decoding.translation import Translation
from regard.errors import RegardError
from regard.serve.fair_queue import Sentence, TranslationJob
from regard.serve.models import ServedModel
from regard.serve.schema import (
    BaseRequest,
    Candidate,
    LookRequest,
    ModelInfo,
    SentenceResult,
    StreamRequest,
    Translated,
    TranslateRequest,
    TranslateResponse,
)
from regard.serve.service import RequestContext, Service, no_demands
from regard.text.segmenter import SplitText
from regard.text.tokenizer import BOS, EOS


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
                    yield _event({"text": self.split_text.begin([*self.done, text])})
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


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


def _candidate(one: Translation) -> Candidate:
    sure = one.confidence
    return Candidate(
        text=one.text,
        score=one.score,
        lacks=list(one.lost),
        tokens=one.tokens,
        confidence=None if sure is None else sure.sentence,
        words=None if sure is None else sure.words,
    )


def options_of(served: ServedModel, body: BaseRequest, **more: int) -> SearchOptions:
    """Return the recipe's search options, overridden by those of the request."""
    return _replaced(served.translator.options, tuple({**body.search(), **more}.items()))


@lru_cache(256)
def _replaced(options: SearchOptions, changes: tuple[tuple[str, Any], ...]) -> SearchOptions:
    return options.replace(**dict(changes))


def add_api(app: FastAPI, service: Service) -> None:
    """Add the routes to an application."""

    @app.post("/v1/translate", tags=["regard"])
    async def translate(request: Request, body: TranslateRequest) -> TranslateResponse:
        """Translate one text or several."""
        context, served = service.authorize(request), service.find_model(body.model, body.target)
        beam = max(body.beam or served.translator.options.beam, body.nbest)
        options = options_of(served, body.model_copy(update={"beam": min(beam, service.limits.beam)}))
        texts = body.text if isinstance(body.text, list) else [body.text]
        demands = body.demands if body.has_demands else no_demands
        return TranslateResponse(
            model=served.name,
            translations=[
                Translated(
                    text=split_text.join([found[0].text for found in all_found]),
                    sentences=[
                        SentenceResult(
                            source=source,
                            text=found[0].text,
                            nbest=[_candidate(one) for one in found],
                            unknown=served.unknown_share(source) if body.unknown else None,
                        )
                        for source, found in zip(split_text.sentences, all_found, strict=True)
                    ],
                )
                for split_text, all_found in await service.translate(context, served, texts, options, demands)
            ],
        )

    @app.post("/v1/stream", tags=["regard"], response_class=StreamingResponse)
    async def stream(request: Request, body: StreamRequest) -> StreamingResponse:
        """Translate a text; send `data: {"text": ...}` with the text so far after each token, lastly with `"done": true`."""
        context, served = service.authorize(request), service.find_model(body.model, body.target)
        if served.translator.backend.non_autoregressive:
            raise HTTPException(422, f"{served.name} is non-autoregressive: it has no partial outputs to stream")
        options = options_of(served, body).greedy()
        (split_text,), sentences = await service.prepare(context, served, [body.text], options)
        events = TranslationStream(service, context, served, options, split_text, sentences).events()
        return StreamingResponse(events, media_type="text/event-stream")

    @app.post("/v1/look", tags=["regard"])
    async def look(request: Request, body: LookRequest) -> dict[str, Any]:
        """Trace how a sentence is translated: attention, probabilities, alternatives. `prefix` forces its first tokens."""
        context, served = service.authorize(request), service.find_model(body.model, body.target)
        if any(token >= served.translator.tokenizers.target.size or token in (BOS, EOS) for token in body.prefix):
            raise HTTPException(422, "prefix: a token id is not in the vocabulary, or is BOS or EOS")
        limits = service.limits
        if len(body.text) > limits.look_characters or served.count_tokens(body.text) > limits.look_tokens:
            raise HTTPException(422, f"text: the sentence must have at most {limits.look_tokens} tokens")
        return await service.look(
            context,
            served,
            body.text,
            options_of(served, body),
            prefix=list(body.prefix),
            alternatives=body.alternatives,
            name=served.name,
        )

    @app.get("/v1/models", tags=["regard"])
    async def list_models(request: Request) -> list[ModelInfo]:
        """List the models with their cards."""
        service.authorize(request)
        return [ModelInfo(**served.describe()) for served in service.models.values()]

    @app.get("/health", tags=["running"])
    async def health() -> dict[str, str]:
        """Return 200 whenever the process runs."""
        return {"status": "ok"}

    @app.get("/ready", tags=["running"])
    async def ready() -> dict[str, Any]:
        """Return 200 if a request would be translated now: a worker is ready and the queue is not full."""
        reason = "the server is shutting down" if service.draining else service.scheduler.not_ready_reason()
        if reason:
            raise HTTPException(503, reason, headers={"Retry-After": "1"})
        return {"status": "ready", "queued": service.scheduler.queued, "workers": service.scheduler.ready_workers}

    @app.get("/metrics", tags=["running"], response_class=PlainTextResponse)
    async def metrics(request: Request) -> PlainTextResponse:
        """Return metrics in Prometheus' text format."""
        if not service.access.public_metrics:
            service.authorize(request)
        scheduler = service.scheduler
        gauges = {
            "queued_sentences": float(scheduler.queued),
            "translated_sentences": float(scheduler.sentences_done),
            "translated_batches": float(scheduler.batches_done),
            "ready_workers": float(scheduler.ready_workers),
            "replaced_workers": float(scheduler.failures),
            "waiting_cost": float(scheduler.pending_cost),
            "clients": float(len(scheduler.client_costs)),
        }
        return PlainTextResponse(service.metrics.text(gauges), media_type="text/plain; version=0.0.4")

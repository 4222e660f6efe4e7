"""Our API, health and numbers. What LibreTranslate's clients ask for is in `libre`."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, StreamingResponse
from starlette.exceptions import HTTPException

from regard.decoding.hypotheses import SearchOptions
from regard.serve.models import Served
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
from regard.serve.service import Service
from regard.serve.streaming import Stream
from regard.text.tokenizer import BOS, EOS


def options_of(served: Served, asked: BaseRequest, **more: int) -> SearchOptions:
    """The recipe's options with those given on top."""
    return served.translator.config.replace(**asked.search(), **more)


def add_api(app: FastAPI, service: Service) -> None:
    """Add the routes."""

    @app.post("/v1/translate", tags=["regard"])
    async def translate(request: Request, asked: TranslateRequest) -> TranslateResponse:
        """Translate a text or several."""
        caller, served = service.enter(request), service.find(asked.model)
        beam = max(asked.beam or served.translator.config.beam, asked.nbest)
        options = options_of(served, asked.model_copy(update={"beam": min(beam, service.limits.beam)}))
        texts = asked.text if isinstance(asked.text, list) else [asked.text]
        return TranslateResponse(
            model=served.name,
            translations=[
                Translated(
                    text=cut.joined([found[0].text for found in all_found]),
                    sentences=[
                        SentenceResult(
                            source=source,
                            text=found[0].text,
                            nbest=[Candidate(text=one.text, score=one.score) for one in found],
                        )
                        for source, found in zip(cut.sentences, all_found, strict=True)
                    ],
                )
                for cut, all_found in await service.translate(caller, served, texts, options)
            ],
        )

    @app.post("/v1/stream", tags=["regard"], response_class=StreamingResponse)
    async def stream(request: Request, asked: StreamRequest) -> StreamingResponse:
        """Translate a text; after every token all that is written: `data: {"text": ...}`, in the end with `"done": true`."""
        caller, served = service.enter(request), service.find(asked.model)
        if served.translator.model.non_autoregressive:
            raise HTTPException(422, f"{served.name} writes all tokens at once; there is nothing to stream")
        options = options_of(served, asked, beam=1)
        (cut,), sentences = await service.prepare(caller, served, [asked.text], options)
        events = Stream(service, caller, served, options, cut, sentences).events()
        return StreamingResponse(events, media_type="text/event-stream")

    @app.post("/v1/look", tags=["regard"])
    async def look(request: Request, asked: LookRequest) -> dict[str, Any]:
        """How one sentence is translated: attention, probabilities, alternatives; `prefix` forces how it begins."""
        caller, served = service.enter(request), service.find(asked.model)
        if any(token >= served.translator.tokenizers.target.size or token in (BOS, EOS) for token in asked.prefix):
            raise HTTPException(422, "prefix: there is no such token")
        if len(asked.text) > service.limits.looked_characters or (
            served.count_tokens(asked.text) > service.limits.looked_tokens
        ):
            raise HTTPException(
                422, f"text: only sentences of up to {service.limits.looked_tokens} tokens can be looked at"
            )
        return await service.look(
            caller,
            served,
            asked.text,
            options_of(served, asked),
            prefix=list(asked.prefix),
            alternatives=asked.alternatives,
            name=served.name,
        )

    @app.get("/v1/models", tags=["regard"])
    async def list_models(request: Request) -> list[ModelInfo]:
        """The models there are, with their cards."""
        service.enter(request)
        return [ModelInfo(**served.describe()) for served in service.models.values()]

    @app.get("/health", tags=["running"])
    async def health() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "ok"}

    @app.get("/ready", tags=["running"])
    async def ready() -> dict[str, Any]:
        """Whether a request now would be translated: a worker is ready, and there is room."""
        reason = "the server is shutting down" if service.draining else service.engine.why_not_ready()
        if reason:
            raise HTTPException(503, reason, headers={"Retry-After": "1"})
        return {"status": "ready", "queued": service.engine.queued, "workers": service.engine.ready_workers}

    @app.get("/metrics", tags=["running"], response_class=PlainTextResponse)
    async def metrics(request: Request) -> PlainTextResponse:
        """Numbers for Prometheus."""
        if not service.access.public_metrics:
            service.enter(request)
        engine = service.engine
        gauges = {
            "queued_sentences": float(engine.queued),
            "translated_sentences": float(engine.sentences),
            "translated_batches": float(engine.batches),
            "ready_workers": float(engine.ready_workers),
            "replaced_workers": float(engine.failures),
            "waiting_cost": float(engine.waiting_cost),
            "clients": float(len(engine.cost_of_client)),
        }
        return PlainTextResponse(service.metrics.text(gauges), media_type="text/plain; version=0.0.4")

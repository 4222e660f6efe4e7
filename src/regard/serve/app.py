"""The server: our API, the page, health and numbers. What LibreTranslate's clients ask for is in `libre`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from regard.decoding.hypotheses import SearchOptions
from regard.decoding.live import write_live
from regard.decoding.translator import search_options
from regard.errors import RegardError
from regard.explain.page import asset, packed
from regard.explain.see import see
from regard.models.base import Seq2Seq
from regard.serve.engine import Engine
from regard.serve.guard import Guard
from regard.serve.libre import add_libre
from regard.serve.limits import Limits
from regard.serve.models import Served, lanes_for
from regard.serve.schema import (
    Asked,
    Candidate,
    LookRequest,
    Model,
    Problem,
    Sentence,
    StreamRequest,
    Translated,
    TranslateRequest,
    TranslateResponse,
)
from regard.serve.service import Service, taken
from regard.text.tokenizer import BOS, EOS

KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
OWN = ("page.html", "page.js", "page.css", "docs.html", "docs.js")
SHARED = ("attention.js", "look.css")  # with the files of `regard look`
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 404, 408, 413, 422, 503)
}


def options_of(served: Served, asked: Asked, **more: int) -> SearchOptions:
    """The recipe's options with those given on top."""
    return search_options(served.translator.config, **asked.search(), **more)


def make_app(models: dict[str, Served], *, device: str, int8: bool, limits: Limits, keys: list[str]) -> FastAPI:
    """The application."""
    lanes, workers = lanes_for(models, device=device, int8=int8)
    service = Service(models, Engine(lanes, limits), limits, keys)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.engine.close)
        for worker in workers:
            worker.close()

    app = FastAPI(
        title="regard",
        summary="Translation with attention",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses=PROBLEMS,
    )
    app.state.service = service
    app.add_middleware(Guard, limits=service.limits, metrics=service.metrics)
    _add_problems(app)
    _add_api(app, service)
    add_libre(app, service)
    _add_page(app)
    return app


def _add_problems(app: FastAPI) -> None:
    """Whatever goes wrong is one sentence of JSON."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, problem: HTTPException) -> JSONResponse:
        return JSONResponse({"error": str(problem.detail)}, problem.status_code, headers=problem.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, problem: RequestValidationError) -> JSONResponse:
        found = (
            problem.errors()
        )  # of a text that is neither one nor a list, one for each: that it is neither says least
        telling = [one for one in found if one["type"] not in ("string_type", "list_type")] or found
        where = ".".join(str(part)[:40] for part in telling[0]["loc"][1:2])
        return JSONResponse({"error": f"{where}: {telling[0]['msg']}" if where else telling[0]["msg"]}, 422)

    @app.exception_handler(Exception)
    async def broken(request: Request, problem: Exception) -> JSONResponse:
        return JSONResponse({"error": "something is wrong with the server"}, 500)

    @app.exception_handler(RegardError)
    async def mistaken(request: Request, problem: RegardError) -> JSONResponse:
        return JSONResponse({"error": str(problem)}, 422)


def _add_api(app: FastAPI, service: Service) -> None:
    def entered(request: Request, asked: Asked) -> Served:
        given = request.headers.get("authorization", "")
        service.check_key(given.removeprefix("Bearer ") if given else None)
        return service.find(asked.model)

    @app.post("/v1/translate", tags=["regard"])
    async def translate(request: Request, asked: TranslateRequest) -> TranslateResponse:
        """Translate a text or several."""
        served = entered(request, asked)
        beam = max(asked.beam or served.translator.config.beam, asked.nbest)
        options = options_of(
            served, asked.model_copy(update={"beam": min(beam, service.limits.beam)}), nbest=asked.nbest
        )
        texts = asked.text if isinstance(asked.text, list) else [asked.text]
        return TranslateResponse(
            model=served.name,
            translations=[
                Translated(
                    text=cut.joined([found[0].text for found in all_found]),
                    sentences=[
                        Sentence(
                            source=source,
                            text=found[0].text,
                            nbest=[Candidate(text=one.text, score=one.score) for one in found],
                        )
                        for source, found in zip(cut.sentences, all_found, strict=True)
                    ],
                )
                for cut, all_found in await service.translate(served, texts, options)
            ],
        )

    @app.post("/v1/stream", tags=["regard"], response_class=StreamingResponse)
    async def stream(request: Request, asked: StreamRequest) -> StreamingResponse:
        """Translate a text; after every token all that is written: `data: {"text": ...}`, in the end with `"done": true`."""
        served = entered(request, asked)
        model = served.translator.model
        if not isinstance(model, Seq2Seq):
            raise HTTPException(422, f"{served.name} writes all tokens at once; there is nothing to stream")
        return StreamingResponse(_events(service, served, asked), media_type="text/event-stream")

    @app.post("/v1/look", tags=["regard"])
    async def look(request: Request, asked: LookRequest) -> dict[str, Any]:
        """How one sentence is translated: attention, probabilities, alternatives; `prefix` forces how it begins."""
        served = entered(request, asked)
        translator = served.translator
        if any(token >= translator.tokenizers.target.size or token in (BOS, EOS) for token in asked.prefix):
            raise HTTPException(422, "prefix: there is no such token")
        if len(translator.tokenizers.source.encode(asked.text)) > service.limits.looked_tokens:
            raise HTTPException(
                422, f"text: only sentences of up to {service.limits.looked_tokens} tokens can be looked at"
            )
        options, prefix = options_of(served, asked), list(asked.prefix)
        found: dict[str, Any] = await service.call(
            lambda: packed(
                see(
                    translator,
                    asked.text,
                    options=options,
                    prefix=prefix,
                    alternatives=asked.alternatives,
                    name=served.name,
                )
            ),
        )
        return found

    @app.get("/v1/models", tags=["regard"])
    async def list_models() -> list[Model]:
        """The models there are, with their cards."""
        return [Model(**served.describe()) for served in service.models.values()]

    @app.get("/health", tags=["running"])
    async def health() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "ok"}

    @app.get("/ready", tags=["running"])
    async def ready() -> dict[str, Any]:
        """Whether there is room for another request."""
        queued = service.engine.queued
        if queued >= service.limits.queued_sentences:
            raise HTTPException(503, "too much is waiting already", headers={"Retry-After": "1"})
        return {"status": "ready", "queued": queued}

    @app.get("/metrics", tags=["running"], response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Numbers for Prometheus."""
        engine = service.engine
        gauges = {
            "queued_sentences": float(engine.queued),
            "translated_sentences": float(engine.translated),
            "translated_batches": float(engine.batches),
        }
        return PlainTextResponse(service.metrics.text(gauges), media_type="text/plain; version=0.0.4")


async def _events(service: Service, served: Served, asked: StreamRequest) -> AsyncIterator[str]:
    """One event after each token; what was said of earlier sentences stays in front."""
    loop, translator = asyncio.get_running_loop(), served.translator
    cut = await asyncio.to_thread(served.cut, asked.text)
    options, ends = options_of(served, asked, beam=1), loop.time() + service.limits.seconds
    decode = translator.tokenizers.target.decode
    done: list[str] = []
    gone = False
    model = translator.model
    assert isinstance(model, Seq2Seq)

    def so_far(text: str) -> str:
        return "".join(space + one for space, one in zip(cut.spaces, [*done, text], strict=False))

    try:
        for sentence in cut.sentences:
            heard: asyncio.Queue[str | None] = asyncio.Queue()

            def hear(ids: list[int], heard: asyncio.Queue[str | None] = heard) -> bool:
                loop.call_soon_threadsafe(heard.put_nowait, decode(ids))
                return not gone

            def write(sentence: str = sentence, hear: Callable[[list[int]], bool] = hear) -> str:
                ids = [*translator.tokenizers.source.encode(sentence)[: translator.longest_source], EOS]
                return decode(write_live(model, ids, options=options, hear=hear))

            (writing,) = taken(lambda write=write: [service.engine.call(write)])  # type: ignore[misc]
            writing.add_done_callback(lambda _, heard=heard: loop.call_soon_threadsafe(heard.put_nowait, None))  # type: ignore[misc]
            while (text := await asyncio.wait_for(heard.get(), max(0.0, ends - loop.time()))) is not None:
                yield _event({"text": so_far(text)})
            done.append(writing.result())
        yield _event({"text": cut.joined(done), "done": True})
    except HTTPException as problem:
        yield _event({"error": str(problem.detail), "done": True})
    except TimeoutError:
        yield _event({"error": "this took too long", "done": True})
    finally:
        gone = True


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


def _add_page(app: FastAPI) -> None:
    files = {name: own_asset(name) for name in OWN} | {name: asset(name) for name in SHARED}

    def answer(name: str) -> Response:
        kind = KINDS[name.rpartition(".")[2]]
        return Response(files[name], media_type=f"{kind}; charset=utf-8", headers={"Cache-Control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return answer("page.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return answer("docs.html")

    @app.get("/assets/{name}", include_in_schema=False)
    async def of_page(name: str) -> Response:
        if name not in files:
            raise HTTPException(404, "there is no such file")
        return answer(name)


def own_asset(name: str) -> str:
    """A file of the page."""
    return (resources.files("regard.serve") / "assets" / name).read_text(encoding="utf-8")

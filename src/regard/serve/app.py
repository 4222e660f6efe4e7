"""The ASGI application: routes, the web page and its files, and errors as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from regard.errors import RegardError
from regard.explain.page import asset
from regard.serve.libretranslate import add_libretranslate
from regard.serve.middleware import GuardMiddleware
from regard.serve.routes import add_api
from regard.serve.schema import Problem
from regard.serve.service import CLIENT_CLOSED_REQUEST, INTERNAL_ERROR, Service

ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 403, 404, 408, 413, 422, 429, 503)
}
MEDIA_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
OWN_ASSETS = ("page.html", "page.js", "page.css", "docs.html", "docs.js")
SHARED_ASSETS = ("attention.js", "look.css")  # also used by the page of `regard look`


def make_app(service: Service) -> GuardMiddleware:
    """Return the application that an HTTP server runs."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.scheduler.close)

    app = FastAPI(
        title="regard",
        summary="Translation with attention",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses=ERROR_RESPONSES,
    )
    _add_error_handlers(app)
    add_api(app, service)
    add_libretranslate(app, service)
    _add_page(app)
    return GuardMiddleware(app, limits=service.limits, access=service.access, metrics=service.metrics)


def _add_error_handlers(app: FastAPI) -> None:
    """Answer every error with a JSON object that holds one sentence."""

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, problem: HTTPException) -> JSONResponse:
        return JSONResponse({"error": str(problem.detail)}, problem.status_code, headers=problem.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid_request(request: Request, problem: RequestValidationError) -> JSONResponse:
        found = problem.errors()
        # A value that is neither a string nor a list gives one error for each type; other errors are more specific.
        specific = [one for one in found if one["type"] not in ("string_type", "list_type")] or found
        where = ".".join(str(part)[:40] for part in specific[0]["loc"][1:2])
        return JSONResponse({"error": f"{where}: {specific[0]['msg']}" if where else specific[0]["msg"]}, 422)

    @app.exception_handler(ClientDisconnect)
    async def disconnected(request: Request, problem: ClientDisconnect) -> JSONResponse:
        return JSONResponse({"error": "the client closed the connection"}, CLIENT_CLOSED_REQUEST)

    @app.exception_handler(Exception)
    async def internal_error(request: Request, problem: Exception) -> JSONResponse:
        return JSONResponse({"error": INTERNAL_ERROR}, 500)

    @app.exception_handler(RegardError)
    async def regard_error(request: Request, problem: RegardError) -> JSONResponse:
        return JSONResponse({"error": str(problem)}, 422)


def _add_page(app: FastAPI) -> None:
    """Add the web page, the API description for people, and the files that they load."""
    files = {name: _own_asset(name) for name in OWN_ASSETS} | {name: asset(name) for name in SHARED_ASSETS}

    def respond(name: str) -> Response:
        media_type = MEDIA_TYPES[name.rpartition(".")[2]]
        return Response(files[name], media_type=f"{media_type}; charset=utf-8", headers={"Cache-Control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return respond("page.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return respond("docs.html")

    @app.get("/assets/{name}", include_in_schema=False)
    async def assets(name: str) -> Response:
        if name not in files:
            raise HTTPException(404, "there is no such file")
        return respond(name)


def _own_asset(name: str) -> str:
    return (resources.files("regard.serve") / "assets" / name).read_text(encoding="utf-8")

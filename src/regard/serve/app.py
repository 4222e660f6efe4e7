"""The application: routes, errors as one sentence of JSON, and the guard around all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from regard.errors import RegardError
from regard.serve.caller import GONE
from regard.serve.guard import Guard
from regard.serve.libre import add_libre
from regard.serve.page_files import add_page
from regard.serve.routes import add_api
from regard.serve.schema import Problem
from regard.serve.service import Service

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 403, 404, 408, 413, 422, 429, 503)
}


def make_app(service: Service) -> Guard:
    """The application that an HTTP server runs."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.engine.close)

    app = FastAPI(
        title="regard",
        summary="Translation with attention",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses=PROBLEMS,
    )
    _add_problems(app)
    add_api(app, service)
    add_libre(app, service)
    add_page(app)
    return Guard(app, limits=service.limits, access=service.access, metrics=service.metrics)


def _add_problems(app: FastAPI) -> None:
    """Whatever goes wrong is one sentence of JSON."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, problem: HTTPException) -> JSONResponse:
        return JSONResponse({"error": str(problem.detail)}, problem.status_code, headers=problem.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, problem: RequestValidationError) -> JSONResponse:
        found = problem.errors()
        # A text that is neither a text nor a list gives one error for each, which say the least.
        telling = [one for one in found if one["type"] not in ("string_type", "list_type")] or found
        where = ".".join(str(part)[:40] for part in telling[0]["loc"][1:2])
        return JSONResponse({"error": f"{where}: {telling[0]['msg']}" if where else telling[0]["msg"]}, 422)

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, problem: ClientDisconnect) -> JSONResponse:
        return JSONResponse({"error": "the client closed the connection"}, GONE)

    @app.exception_handler(Exception)
    async def broken(request: Request, problem: Exception) -> JSONResponse:
        return JSONResponse({"error": "something is wrong with the server"}, 500)

    @app.exception_handler(RegardError)
    async def mistaken(request: Request, problem: RegardError) -> JSONResponse:
        return JSONResponse({"error": str(problem)}, 422)

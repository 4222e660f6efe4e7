"""The HTTP server: the ASGI application with its page and its errors as JSON; starting workers, listening, shutting down."""

from __future__ import annotations

import asyncio
import functools
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib import resources
from queue import SimpleQueue
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from regard.errors import ConfigError, RegardError
from regard.explain.page_assets import VIEW_MODULES, asset
from regard.loading import computes_on_gpu
from regard.serve.access import Access, Limits, client_address
from regard.serve.connections import Connection, ConnectionLimiter
from regard.serve.libretranslate import add_libretranslate
from regard.serve.middleware import HEADERS, GuardMiddleware
from regard.serve.models import ServedModel
from regard.serve.request_errors import describe_invalid, describe_refusal
from regard.serve.routes import add_api
from regard.serve.scheduler import Scheduler
from regard.serve.schema import Problem
from regard.serve.service import CLIENT_CLOSED_REQUEST, INTERNAL_ERROR, Service
from regard.serve.worker_process import WorkerCommand, WorkerProcess
from regard.signals import HANGUP, STOPPING

ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 403, 404, 408, 413, 422, 429, 503)
}
MEDIA_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
PAGE_MODULES = (
    *("page.js", "requests.js", "translating.js", "translated_text.js", "trace_panel.js"),
    *("advice.js", "files.js", "history.js"),
)
OWN_ASSETS = ("page.html", "page.css", "docs.html", "docs.js", *PAGE_MODULES)
SHARED_ASSETS = (*VIEW_MODULES, "look.css", "desk.css")  # of other pages too
START_SECONDS = 300.0  # for the first worker to load its models
START_ATTEMPTS = 3  # failures per worker before any is ready
TASKS_PER_WORKER = 32  # batches that a worker with the engine runs at once
MAX_MESSAGES = 1000  # in the queue of messages; more are dropped
RESPONSE_SECONDS = 5  # to send responses after the last jobs were abandoned


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
        return JSONResponse({"error": describe_refusal(request, problem)}, problem.status_code, headers=problem.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid_request(request: Request, problem: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": describe_invalid(request, problem.errors())}, 422)

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


class MessagePrinter:
    """Prints messages from its own thread, so that a blocked terminal or pipe does not block the server."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self._waiting: SimpleQueue[str] = SimpleQueue()
        threading.Thread(target=self._print, name="messages", daemon=True).start()

    def __call__(self, text: str) -> None:
        if self._waiting.qsize() < MAX_MESSAGES:
            self._waiting.put(text)

    def _print(self) -> None:
        while True:
            with suppress(OSError):  # a full or closed pipe
                self.say(self._waiting.get())


def start_service(
    models: dict[str, ServedModel],
    *,
    device: str,
    int8: bool | None,
    precision: str = "auto",
    workers: int,
    limits: Limits,
    access: Access,
    say: Callable[[str], None],
    pivot: str | None = None,
    engine: str = "auto",
) -> Service:
    """Start the worker processes and wait until the first one is ready."""
    runs = [served.folder.name_in_use for served in models.values()]
    into = [served.into for served in models.values()]
    # One thread per process: a process per core is isolated from the crashes of others. With the engine each runs several
    # tasks at once, whose sentences share its batches.
    on_gpu = computes_on_gpu(device)
    shares_batches = not on_gpu and all(served.translator.backend.shares_batches for served in models.values())
    tasks = TASKS_PER_WORKER if shares_batches else 1
    command = WorkerCommand.for_runs(
        runs, device=device, int8=int8, threads=1, tasks=tasks, into=into, engine=engine, precision=precision
    )
    numbers = {name: number for number, name in enumerate(models)}
    scheduler = Scheduler(
        functools.partial(WorkerProcess, command),
        workers=workers,
        tasks=tasks,
        models=numbers,
        limits=limits,
        say=MessagePrinter(say),
    )
    ends = time.monotonic() + START_SECONDS
    while not scheduler.ready_workers:
        if scheduler.failures >= START_ATTEMPTS * workers or time.monotonic() > ends:
            scheduler.close()
            raise ConfigError("no worker process could load the models; see the messages above")
        time.sleep(0.02)
    return Service(models, scheduler, limits, access, pivot=pivot)


class Server(uvicorn.Server):
    """A uvicorn server that reports when it listens and limits the time of a graceful shutdown."""

    def __init__(self, config: uvicorn.Config, service: Service, started: Callable[[], None]) -> None:
        super().__init__(config)
        self.service, self.started_listening = service, started

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.started_listening()

    async def shutdown(self, sockets: Any = None) -> None:
        self.service.draining = True
        loop = asyncio.get_running_loop()
        loop.call_later(self.service.limits.drain_seconds, self.service.scheduler.abandon)
        await super().shutdown(sockets)


def run_server(
    service: Service,
    listening: socket.socket,
    *,
    address: str,
    proxies: tuple[str, ...],
    say: Callable[[str], None],
) -> None:
    """Serve requests until SIGINT or SIGTERM."""
    limits = service.limits
    limiter = ConnectionLimiter(limits, proxies=tuple(map(client_address, proxies)))
    config = uvicorn.Config(
        make_app(service),
        http=functools.partial(Connection, limiter=limiter),  # type: ignore[arg-type]
        ws="none",
        log_level="warning",
        server_header=False,
        headers=HEADERS,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=int(limits.drain_seconds) + RESPONSE_SECONDS,
    )
    names = ", ".join(service.models)
    server = Server(config, service, lambda: say(f"serving {names} at {address}   (stop with Ctrl-C)"))

    def stop(number: int, frame: Any) -> None:
        server.should_exit = True

    # uvicorn replaces the handlers of SIGINT and SIGTERM while it runs. Under nohup SIGHUP stays ignored.
    for one in STOPPING:
        if one != HANGUP or signal.getsignal(one) != signal.SIG_IGN:
            signal.signal(one, stop)
    server.run(sockets=[listening])

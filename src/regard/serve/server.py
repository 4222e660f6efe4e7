"""The HTTP server: starts the workers, listens, and shuts down within a bounded time."""

from __future__ import annotations

import asyncio
import functools
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import uvicorn

from regard.errors import ConfigError
from regard.serve.access import Access, client_address
from regard.serve.app import make_app
from regard.serve.connections import Connection, ConnectionLimiter
from regard.serve.limits import Limits
from regard.serve.middleware import HEADERS
from regard.serve.models import ServedModel
from regard.serve.scheduler import Scheduler
from regard.serve.service import Service
from regard.serve.worker_process import WorkerCommand, WorkerProcess

START_SECONDS = 300.0  # for the first worker to load its models
START_ATTEMPTS = 3  # failures per worker before any is ready
MAX_MESSAGES = 1000  # in the queue of messages; more are dropped
RESPONSE_SECONDS = 5  # to send responses after the last jobs were abandoned


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
    int8: bool,
    workers: int,
    limits: Limits,
    access: Access,
    say: Callable[[str], None],
) -> Service:
    """Start the worker processes and wait until the first one is ready."""
    runs = [served.folder.path for served in models.values()]
    threads = 1  # one search step is too little work to split between cores
    command = WorkerCommand.for_runs(runs, device=device, int8=int8, threads=threads)
    numbers = {name: number for number, name in enumerate(models)}
    scheduler = Scheduler(
        lambda: WorkerProcess(command), workers=workers, models=numbers, limits=limits, say=MessagePrinter(say)
    )
    ends = time.monotonic() + START_SECONDS
    while not scheduler.ready_workers:
        if scheduler.failures >= START_ATTEMPTS * workers or time.monotonic() > ends:
            scheduler.close()
            raise ConfigError("no worker process could load the models; see the messages above")
        time.sleep(0.02)
    return Service(models, scheduler, limits, access)


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
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN:
            signal.signal(one, stop)
    server.run(sockets=[listening])

"""The HTTP server: starts workers, listens, and stops within a bounded time."""

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
from regard.serve.connections import Connection, Connections
from regard.serve.engine import Engine
from regard.serve.guard import HEADERS
from regard.serve.limits import Limits
from regard.serve.models import Served
from regard.serve.service import Service
from regard.serve.worker_process import WorkerCommand, WorkerProcess

START_SECONDS = 300.0  # that the first worker may take to load its models
START_ATTEMPTS = 3  # workers that may fail before any is ready
MOST_MESSAGES = 1000  # that wait to be shown; more are dropped
ANSWER_SECONDS = 5  # for answers to be sent after the last work was abandoned


class Messages:
    """Shows messages from a thread of its own: whoever has one does not wait for a terminal or a pipe that nobody reads."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self._waiting: SimpleQueue[str] = SimpleQueue()
        threading.Thread(target=self._show, name="messages", daemon=True).start()

    def __call__(self, text: str) -> None:
        if self._waiting.qsize() < MOST_MESSAGES:
            self._waiting.put(text)

    def _show(self) -> None:
        while True:
            with suppress(OSError):  # a pipe that is full, or closed
                self.say(self._waiting.get())


def start_service(
    models: dict[str, Served],
    *,
    device: str,
    int8: bool,
    workers: int,
    limits: Limits,
    access: Access,
    say: Callable[[str], None],
) -> Service:
    """Start the worker processes, and wait for the first one to be ready."""
    runs = [served.folder.path for served in models.values()]
    threads = 1  # one step of search is too little work to share among cores
    command = WorkerCommand.for_runs(runs, device=device, int8=int8, threads=threads)
    numbers = {name: number for number, name in enumerate(models)}
    engine = Engine(lambda: WorkerProcess(command), workers=workers, models=numbers, limits=limits, say=Messages(say))
    ends = time.monotonic() + START_SECONDS
    while not engine.ready_workers:
        if engine.failures >= START_ATTEMPTS * workers or time.monotonic() > ends:
            engine.close()
            raise ConfigError("no worker process could load the models; see the messages above")
        time.sleep(0.02)
    return Service(models, engine, limits, access)


class Server(uvicorn.Server):
    """A uvicorn server that says where it listens, and gives accepted work a bounded time when it stops."""

    def __init__(self, config: uvicorn.Config, service: Service, started: Callable[[], None]) -> None:
        super().__init__(config)
        self.service, self.started_listening = service, started

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.started_listening()

    async def shutdown(self, sockets: Any = None) -> None:
        self.service.draining = True
        loop = asyncio.get_running_loop()
        loop.call_later(self.service.limits.drain_seconds, self.service.engine.abandon)
        await super().shutdown(sockets)


def run_server(
    service: Service,
    listening: socket.socket,
    *,
    address: str,
    proxies: tuple[str, ...],
    say: Callable[[str], None],
) -> None:
    """Answer requests until SIGINT or SIGTERM."""
    limits = service.limits
    connections = Connections(limits, proxies=tuple(map(client_address, proxies)))
    config = uvicorn.Config(
        make_app(service),
        http=functools.partial(Connection, connections=connections),  # type: ignore[arg-type]
        ws="none",
        log_level="warning",
        server_header=False,
        headers=HEADERS,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=int(limits.drain_seconds) + ANSWER_SECONDS,
    )
    names = ", ".join(service.models)
    server = Server(config, service, lambda: say(f"serving {names} at {address}   Ctrl-C stops"))

    def stop(number: int, frame: Any) -> None:
        server.should_exit = True

    # uvicorn replaces the first two while it runs. SIGHUP stays ignored under nohup.
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN:
            signal.signal(one, stop)
    server.run(sockets=[listening])

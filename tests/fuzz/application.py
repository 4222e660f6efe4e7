"""The server's application in this process, with a thread instead of worker processes and an echo instead of search."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any

from regard.decoding.translator import Ready, Translation, Translator
from regard.errors import RegardError
from regard.serve.access import LOOPBACK, Access, Limits
from regard.serve.models import load_all
from regard.serve.scheduler import Scheduler
from regard.serve.server import make_app
from regard.serve.service import Service
from regard.serve.worker import run_task
from tests.fuzz.request_cases import KEY, Mutation, body_of, scope_of

LIMITS = Limits(batch_gap=0.0005, batch_wait=0.001, body_seconds=0.3, seconds=10.0)
RELEASE_SECONDS = 5.0  # for the scheduler to release a finished request


class EchoTranslator(Translator):
    """A translator that returns its input; looks and streams use the model."""

    def each(self, texts: Sequence[str], *, options: Any = None, first: int = 1, check: Any = None) -> Iterator[Ready]:
        nbest = options.nbest if options is not None else 1
        yield [(number, [Translation(text, -float(way)) for way in range(nbest)]) for number, text in enumerate(texts)]


class ThreadWorker:
    """The interface of a worker process; tasks run in the executor's thread."""

    loaded = is_ready = True
    process = SimpleNamespace(pid=0)

    def __init__(self, translator: Translator, failures: list[str]) -> None:
        self.translator, self.failures = translator, failures
        self._messages: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._channel = SimpleNamespace(cancelled=frozenset(), send=self._answer, end=self._end)

    def send(self, task: dict[str, Any]) -> None:
        if "cancel" in task:
            return
        try:
            run_task(json.loads(json.dumps(task)), self.translator, self._channel)  # type: ignore[arg-type]
        except Exception as error:
            mistake = isinstance(error, RegardError)
            end = {"kind": "mistake" if mistake else "error", "error": type(error).__name__, "text": str(error)[:1000]}
            self.failures += [] if mistake else [traceback.format_exc()]
            self._end(task["id"], end)

    def _end(self, task: int, error: dict[str, str] | None, ready: Sequence[tuple[int, Any]] = ()) -> None:
        self._answer({"id": task, "ready": ready, "end": error})

    def _answer(self, message: dict[str, Any]) -> None:
        self._messages.put(json.loads(json.dumps(message)))

    def wake(self) -> None:
        self._messages.put({})

    def receive(self, timeout: float) -> dict[str, Any] | None:
        try:
            return self._messages.get(timeout=timeout) or None
        except Empty:
            return None

    def kill(self) -> None: ...

    def close(self) -> None: ...


class BadAnswer(Exception):
    """A response that a client cannot use."""


class Application:
    """The application on its own event loop."""

    def __init__(self, run: Path) -> None:
        models = load_all([run], int8=False)
        ((name, served),) = models.items()
        own = served.translator
        echo = EchoTranslator(own.backend, own.tokenizers, own.options)
        models[name] = dataclasses.replace(served, translator=echo)
        self.failures: list[str] = []

        def start() -> Any:
            return ThreadWorker(echo, self.failures)

        self.scheduler = Scheduler(start, workers=1, models={name: 0}, limits=LIMITS)
        access = Access(keys=[KEY], hosts=LOOPBACK)
        self.app = make_app(Service(models, self.scheduler, LIMITS, access))
        self.loop = asyncio.new_event_loop()

    def answer(self, request: Mutation) -> str:
        """Return the response body; raise BadAnswer if the response is a failure of the server."""
        status, body = self.loop.run_until_complete(self._exchange(request))
        if self.failures:
            raise BadAnswer(f"a task failed: {self.failures.pop()}")
        check_answer(request, status, body)
        self._check_released()
        return body.decode("utf-8", "replace")

    def _check_released(self) -> None:
        """Raise BadAnswer if the scheduler still holds jobs of a finished request."""
        ends = time.monotonic() + RELEASE_SECONDS
        while self.scheduler.client_costs or self.scheduler.queued:
            if time.monotonic() > ends:
                raise BadAnswer("a job was not released")
            time.sleep(0.001)

    async def _exchange(self, request: Mutation) -> tuple[int | None, bytes]:
        content = body_of(request)
        size = -(-len(content) // request["parts"]) or 1
        parts = [content[at : at + size] for at in range(0, len(content), size)] or [b""]
        waiting = asyncio.Event()
        messages = [
            {"type": "http.request", "body": part, "more_body": number < len(parts) - 1}
            for number, part in enumerate(parts)
        ]
        if request["ends"] == "disconnect":
            messages[-1] = {"type": "http.disconnect"}
        elif request["ends"] == "silence":
            messages.pop()
        given = iter(messages)
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            message = next(given, None)
            if message is None:
                await waiting.wait()
                return {"type": "http.disconnect"}
            return message

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        async with asyncio.timeout(15):
            await self.app(scope_of(request, len(content)), receive, send)
        waiting.set()
        status = next((one["status"] for one in sent if one["type"] == "http.response.start"), None)
        return status, b"".join(one.get("body", b"") for one in sent)


def check_answer(request: Mutation, status: int | None, body: bytes) -> None:
    """Raise BadAnswer unless the answer is a success or one sentence of JSON."""
    if status is None:
        if request["ends"] == "normal":
            raise BadAnswer("no answer")
        return
    if status >= 500 and status != 503:
        raise BadAnswer(f"status {status}")
    if status >= 400 and request["method"] != "HEAD":
        try:
            answer = json.loads(body)
        except ValueError as error:
            raise BadAnswer(f"status {status} without JSON") from error
        if not isinstance(answer, dict) or not isinstance(answer.get("error"), str):
            raise BadAnswer(f"status {status} without an error")
        if len(body) > 2000:
            raise BadAnswer(f"an error of {len(body)} bytes")

"""Requests of any shape to every route of the server, in this process and with a stub in place of search."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from regard.decoding.translator import Ready, Translation, Translator
from regard.serve.app import make_app
from regard.serve.limits import Limits
from regard.serve.models import load_all
from tests.fuzz import binary_edits
from tests.fuzz.odd_values import JSON_VALUES
from tests.fuzz.tree_edits import apply_edit, as_json, draw_edit, encoded

Mutation = dict[str, Any]
KEY = "the-key"
OWN = "/v1/"
BODIES: dict[str, dict[str, Any]] = {
    "/v1/translate": {"text": ["c a b", "a. b! c"], "model": None, "beam": 2, "nbest": 2, "length_penalty": 0.5},
    "/v1/stream": {"text": "c a b. a", "max_extra": 2},
    "/v1/look": {"text": "c a", "prefix": [4], "alternatives": 2, "beam": 1, "max_extra": 2},
    "/translate": {"q": "c a b", "source": "de", "target": "en", "alternatives": 1, "api_key": KEY, "format": "text"},
    "/detect": {"q": "c a b", "api_key": KEY},
}
PAGES = ["/", "/docs", "/openapi.json", "/assets/page.js", "/v1/models", "/health", "/ready", "/metrics", "/languages"]
PATHS = ["/assets/../app.py", "/assets/%2e%2e%2fapp.py", "/v1/%00", "//", "/assets/", "/" + "x" * 5000, "*", ""]
METHODS = ["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH", "TRACE", "X" * 300, "get"]
CONTENT_TYPES = [
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "multipart/form-data",
    "text/plain",
    "application/json; charset=utf-7",
    "application/vnd.x+json",
    "",
    "\xff\xfe",
]
HEADERS = [
    ("authorization", "Bearer the-key"),
    ("authorization", "Bearer \xff\xfe"),
    ("authorization", "Basic x"),
    ("authorization", ""),
    ("content-length", "-1"),
    ("content-length", "1" + "0" * 30),
    ("content-length", "x"),
    ("content-encoding", "gzip"),
    ("transfer-encoding", "chunked"),
    ("expect", "100-continue"),
    ("host", "evil\r\n"),
    ("cookie", "a=" + "b" * 10_000),
    ("accept", "\x00"),
    ("x-forwarded-for", "' OR 1=1"),
    ("range", "bytes=0-18446744073709551615"),
    ("origin", "null"),
]
TEXTS = [
    "\x00\x1b[31m",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    "a" * 20_000,
    ". " * 3000,
    "\n" * 5000,
    "\u0301" * 300,
    "\u202e\u200d\ufeff",
    "a.\u3002" * 200,
    "",
    " ",
]


def draw_request(random: Random) -> Mutation:
    """Return a request with a few odd parts."""
    request: Mutation = {"kind": "request", "method": "POST", "headers": [], "edits": [], "bytes": []}
    if random.random() < 0.12:
        request |= {"path": random.choice([*PAGES, *PATHS]), "method": random.choice(METHODS), "body": None}
    else:
        request["path"] = request["body"] = random.choice(list(BODIES))
        if random.random() < 0.05:
            request["body"] = random.choice(list(BODIES))
        if random.random() < 0.04:
            request["method"] = random.choice(METHODS)
    template = BODIES.get(str(request["body"]), {})
    keys = ["text", "q", "model", "beam", "nbest", "prefix", "iterations", "max_extra", "alternatives"]
    for _ in range(random.choices([0, 1, 2, 3], [10, 60, 20, 10])[0]):
        request["edits"].append(draw_edit(random, template, JSON_VALUES, keys))
    if random.random() < 0.2:
        request["text"] = random.randrange(len(TEXTS))
    if random.random() < 0.1:
        request["bytes"].append(binary_edits.draw_bytes(random))
    form = request["path"] in ("/translate", "/detect") and random.random() < 0.3
    request["content_type"] = CONTENT_TYPES[1] if form else CONTENT_TYPES[0]
    if random.random() < 0.08:
        request["content_type"] = random.choice(CONTENT_TYPES)
    request["form"] = form
    request["keyed"] = random.random() < 0.9
    if random.random() < 0.2:
        request["headers"] += [list(random.choice(HEADERS)) for _ in range(random.choice([1, 1, 2, 300]))]
    request["parts"] = random.choices([1, 2, 50], [80, 15, 5])[0]
    request["ends"] = random.choices(["normal", "disconnect", "silence"], [96, 3, 1])[0]
    request["query"] = random.choice(["", "", "", "a=1&a=2", "%00=%ff", "x" * 3000])
    return request


def body_of(request: Mutation) -> bytes:
    """Return the bytes of the request's body."""
    if request["body"] is None:
        return b""
    tree: Any = json.loads(json.dumps(BODIES[request["body"]]))
    if "text" in request:
        tree["q" if "q" in tree else "text"] = TEXTS[request["text"]]
    for edit in request["edits"]:
        tree = apply_edit(tree, edit)
    if request["form"] and isinstance(tree, dict):
        content = "&".join(f"{key}={as_json(value, indent=None)}" for key, value in tree.items())
    else:
        content = as_json(tree, indent=None)
    body = encoded(content)
    for edit in request["bytes"]:
        body = binary_edits.apply_bytes(body, edit)
    return body


class EchoTranslator(Translator):
    """A translator that answers with its input, for all requests that are not about the model itself."""

    def each(self, texts: Sequence[str], *, options: Any = None, first: int = 1) -> Iterator[Ready]:
        nbest = options.nbest if options is not None else 1
        yield [(number, [Translation(text, -float(way)) for way in range(nbest)]) for number, text in enumerate(texts)]


class BadAnswer(Exception):
    """A response that a client cannot use."""


class Application:
    """The server's application on an event loop of its own."""

    def __init__(self, run: Path) -> None:
        models = load_all([run], device="cpu", int8=False)
        for name, served in models.items():
            own = served.translator
            echo = EchoTranslator(own.model, own.tokenizers, own.config)
            models[name] = dataclasses.replace(served, translator=echo)
        wanted = {"batch_gap": 0.0005, "batch_wait": 0.001, "body_seconds": 0.3, "seconds": 10.0}
        known = {one.name for one in dataclasses.fields(Limits)}
        limits = dataclasses.replace(Limits(), **{name: value for name, value in wanted.items() if name in known})
        self.app = make_app(models, device="cpu", int8=False, limits=limits, keys=[KEY])
        self.loop = asyncio.new_event_loop()

    def answer(self, request: Mutation) -> str:
        """Return what the application sends back; BadAnswer if that is a failure of the server."""
        status, body = self.loop.run_until_complete(self._exchange(request))
        check_answer(request, status, body)
        return body.decode("utf-8", "replace")

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


def scope_of(request: Mutation, length: int) -> dict[str, Any]:
    headers = [("content-type", request["content_type"]), ("content-length", str(length)), *request["headers"]]
    if request["keyed"]:
        headers.append(("authorization", f"Bearer {KEY}"))
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request["method"],
        "scheme": "http",
        "path": request["path"],
        "raw_path": request["path"].encode(),
        "root_path": "",
        "query_string": request["query"].encode(),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 80),
    }


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

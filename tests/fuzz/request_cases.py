"""Unusual requests to every route of the server."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.fuzz import binary_edits
from tests.fuzz.odd_values import JSON_VALUES
from tests.fuzz.tree_edits import apply_edit, as_json, draw_edit, encoded

Mutation = dict[str, Any]
KEY = "the-key"
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
    """Return a request with a few unusual parts."""
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


def scope_of(request: Mutation, length: int) -> dict[str, Any]:
    headers = [
        ("host", "localhost"),
        ("content-type", request["content_type"]),
        ("content-length", str(length)),
        *request["headers"],
    ]
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

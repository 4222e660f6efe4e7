"""Idle, half-open and unread connections are closed, and cannot lock out others."""

import functools
import socket
import threading
import time
from contextlib import ExitStack, contextmanager

import httpx
import pytest
import uvicorn

from regard.serve.access import Access, Limits
from regard.serve.connections import SPARE, Connection, ConnectionLimiter
from regard.serve.middleware import HEADERS, GuardMiddleware, Metrics

LIMITS = Limits(
    connections=6, address_connections=4, header_seconds=1.0, idle_seconds=1, write_seconds=1.0, header_bytes=5000
)
HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
LARGE = 50_000_000  # bytes; more than the socket buffers hold
hold = threading.Event()


async def app(scope, receive, send):
    """Answer /large with many bytes, /hold when `hold` is set, and everything else with "ok"."""
    if scope["type"] != "http":
        return
    if scope["path"] == "/error":
        raise ValueError("an error in the application")
    body = b"x" * LARGE if scope["path"] == "/large" else b"ok"
    if scope["path"] == "/hold":
        import asyncio

        await asyncio.to_thread(hold.wait, 20)
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]}
    )
    await send({"type": "http.response.body", "body": body})


class Running:
    """A server in a thread."""

    def __init__(self, limits):
        self.limiter = ConnectionLimiter(limits)
        guarded = GuardMiddleware(app, limits=limits, access=Access(), metrics=Metrics())
        config = uvicorn.Config(
            guarded,
            http=functools.partial(Connection, limiter=self.limiter),
            ws="none",
            lifespan="off",
            log_level="critical",
            headers=HEADERS,
            timeout_keep_alive=limits.idle_seconds,
            timeout_graceful_shutdown=2,
        )
        self.server = uvicorn.Server(config)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listening]})

    def connect(self, data=b"", *, source="127.0.0.1"):
        found = socket.create_connection(("127.0.0.1", self.port), timeout=15, source_address=(source, 0))
        found.sendall(data)
        return found

    def get(self, path, *, source="127.0.0.1"):
        with httpx.Client(transport=httpx.HTTPTransport(local_address=source)) as client:
            return client.get(f"http://127.0.0.1:{self.port}{path}", timeout=15)


@contextmanager
def running(limits=LIMITS):
    found = Running(limits)
    found.thread.start()
    while not found.server.started:
        time.sleep(0.01)
    hold.clear()
    try:
        yield found
    finally:
        hold.set()
        found.server.should_exit = True
        found.thread.join(20)


@pytest.fixture
def server():
    with running() as found:
        yield found


def read_all(connection):
    """Return everything received until the connection is closed."""
    received = b""
    try:
        while some := connection.recv(100_000):
            received += some
    except ConnectionResetError:
        pass
    return received


@pytest.mark.slow(unless=["name"])
@pytest.mark.parametrize("sent", [b"GET /health HTT", HEAD, HEAD + b"X-Slow: "], ids=["request", "line", "name"])
def test_headers_that_do_not_arrive_time_out(server, sent):
    received = read_all(server.connect(sent))
    assert received.startswith(b"HTTP/1.1 408 ") and b"x-content-type-options: nosniff" in received


def test_a_connection_without_a_request_is_closed(server):
    assert read_all(server.connect()) == b""


def test_a_connection_is_closed_after_its_last_request(server):
    assert read_all(server.connect(HEAD + b"\r\n")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
def test_a_half_open_second_request_times_out(server):
    received = read_all(server.connect(HEAD + b"\r\n" + HEAD))
    assert received.startswith(b"HTTP/1.1 200 ") and received.count(b"HTTP/1.1 ") <= 2
    connection = server.connect(HEAD + b"\r\n")
    time.sleep(0.3)
    connection.sendall(HEAD)
    assert b"HTTP/1.1 408 " in read_all(connection)


def test_headers_that_are_too_large_are_refused(server):
    received = read_all(server.connect(HEAD + b"X: " + b"x" * 20_000))
    assert received.startswith(b"HTTP/1.1 431 ") and b"content-security-policy" in received


def test_headers_that_are_too_large_are_refused_while_another_request_is_answered(server):
    connection = server.connect(b"GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(0.3)
    connection.sendall(HEAD + b"X: " + b"x" * 20_000)
    assert read_all(connection).startswith(b"HTTP/1.1 431 ")


@pytest.mark.slow
def test_a_client_that_does_not_read_is_disconnected(server):
    connection = server.connect(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
    ends = time.monotonic() + 15
    while server.limiter.open:
        assert time.monotonic() < ends, "the connection is still open"
        time.sleep(0.05)
    assert len(read_all(connection)) < LARGE


def test_an_idle_connection_makes_room_for_a_new_one(server):
    idle = [server.connect() for _ in range(4)]
    assert server.get("/").text == "ok"
    assert idle[0].recv(10) == b""


def test_one_address_cannot_take_all_connections(server):
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(server.connect(b"GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        time.sleep(0.3)
        assert server.get("/").status_code == 503
        assert server.get("/", source="127.0.0.2").text == "ok"


def test_health_is_answered_when_all_connections_are_in_use(server):
    with ExitStack() as stack:
        for number in range(6 + 2 * SPARE):
            source = f"127.0.0.{2 + number % 3}"
            stack.enter_context(server.connect(b"GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n", source=source))
        for _ in range(2 * SPARE):  # and half-open ones after them
            stack.enter_context(server.connect(b"GET", source="127.0.0.9"))
        assert server.get("/health").json() == {"status": "ok"}
        answer = server.get("/")
        assert answer.status_code == 503 and "connections" in answer.json()["error"]


def test_health_is_answered_under_too_many_requests():
    with running(Limits(requests=2)) as server, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(server.connect(b"GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        time.sleep(0.3)
        answer = server.get("/")
        assert (
            answer.status_code == 503
            and answer.headers["retry-after"]
            and "too many concurrent requests" in answer.text
        )
        assert server.get("/health").text == "ok"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [(b"nonsense\r\n\r\n", 400), (b"GET /error HTTP/1.1\r\nHost: localhost\r\n\r\n", 500), (HEAD + b"\r\n", 200)],
)
def test_every_response_has_each_security_header_once(server, request_bytes, status):
    received = read_all(server.connect(request_bytes)).lower()
    assert received.startswith(b"http/1.1 %d " % status)
    for name, value in HEADERS:
        assert received.count(f"{name}: {value}".lower().encode()) == 1

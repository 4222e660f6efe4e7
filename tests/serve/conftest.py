"""A real server on loopback with the pretrained models."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.browser import Watched, expect


@dataclass
class Server:
    process: subprocess.Popen
    url: str

    @property
    def port(self):
        return int(self.url.rpartition(":")[2])

    def post(self, path, **options):
        return httpx.post(self.url + path, timeout=60, **options)

    def get(self, path, **options):
        return httpx.get(self.url + path, timeout=60, **options)

    def resident(self, pid=None):
        """Return the resident memory of the server, or of another process, in bytes."""
        with open(f"/proc/{pid or self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def workers(self):
        """Return the ids of the worker processes."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        return [int(one) for path in tasks.glob("*/children") for one in path.read_text().split()]

    def send(self, path, body):
        """Send a request and return the connection without reading the response."""
        content = json.dumps(body).encode()
        head = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        head += [f"Content-Length: {len(content)}", "", ""]
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.sendall("\r\n".join(head).encode() + content)
        return connection


@contextmanager
def serving(*arguments, **environment):
    """Run a server process until the context ends."""
    command = [sys.executable, "-m", "regard", "serve", "--port", "0", "--threads", "2", "--device", "cpu", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | environment)
    output = []
    for line in process.stderr:
        output.append(line)
        if found := re.search(r"at (http://\S+)", line):
            break
    else:
        raise AssertionError("".join(output))
    try:
        yield Server(process, found[1])
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=90)[1]
        assert "Traceback" not in rest, rest


@pytest.fixture(scope="session")
def server():
    with serving() as found:
        yield found


@pytest.fixture(scope="session")
def locked(tmp_path_factory):
    """A server with keys."""
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("secret\nother\n")
    with serving("de-en", "--api-key-file", str(path), REGARD_API_KEYS="third") as found:
        yield found


@pytest.fixture
def opened(browser, server):
    """The page of the server, with a model chosen. Afterwards none has complained or asked for anything outside."""
    made = []

    def opener(model=None, **options):
        watched = Watched(browser, **options)
        made.append(watched)
        watched.page.goto(server.url + "/")
        expect(watched.page.locator("#model option")).to_have_count(3)
        if model is not None:
            watched.page.select_option("#model", model)
        return watched

    yield opener
    for watched in made:
        assert watched.complaints == []
        assert [url for url in watched.requests if not url.startswith((server.url, "data:", "blob:"))] == []
        watched.context.close()

"""Bulk and hostile clients and hanging workers delay other clients by seconds at most."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.serve.conftest import serving
from tests.serve.load import POOL

pytestmark = pytest.mark.slow

SOON = 30  # seconds: enough for a busy machine, and less than the minutes that the other requests take


@pytest.fixture(scope="module")
def server():
    with serving("de-en") as found:
        until(lambda: found.get("/ready").status_code == 200)
        yield found


def until(condition, seconds=60):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "the condition was never met"
        time.sleep(0.05)


def short_request(server, seconds=SOON):
    """Return the seconds that an interactive request takes."""
    began = time.monotonic()
    answer = server.post("/v1/translate", json={"text": "Guten Morgen!"})
    assert answer.json()["translations"][0]["text"] == "Good morning."
    assert time.monotonic() - began < seconds
    return time.monotonic() - began


def peak(server, seconds, *, during=lambda: True):
    """Return the peak resident memory of any of the processes."""
    found, ends = 0, time.monotonic() + seconds
    while time.monotonic() < ends and during():
        with suppress(FileNotFoundError, IndexError):
            found = max(found, *(server.resident(pid) for pid in [server.process.pid, *server.workers()]))
        time.sleep(0.05)
    return found


def idle(server):
    ready = server.get("/ready")
    return ready.status_code == 200 and not ready.json()["queued"]


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def working(server):
    """Return whether any worker uses the CPU."""
    before = sum(map(cpu_seconds, server.workers()))
    time.sleep(1)
    return sum(map(cpu_seconds, server.workers())) - before > 0.3


def test_a_very_long_word_is_dropped_when_the_client_disconnects(server):
    connection = server.send("/v1/translate", {"text": "a" * 60_000})
    time.sleep(0.7)
    connection.close()
    short_request(server)
    until(lambda: idle(server) and not working(server), 20)


def test_a_very_long_word_does_not_delay_others(server):
    short_request(server)
    connection = server.send("/v1/translate", {"text": "a" * 60_000})
    time.sleep(1)
    for _ in range(3):
        short_request(server)
    connection.close()


def test_a_text_that_would_take_minutes_is_refused(server):
    began = time.monotonic()
    answer = server.post("/v1/translate", json={"text": "a" * 100_000})
    assert answer.status_code == 413 and "costs too much" in answer.json()["error"]
    answer = server.post("/v1/translate", json={"text": "a", "beam": 16, "max_extra": 1000})
    assert answer.status_code == 413 and "lower beam" in answer.json()["error"]
    assert time.monotonic() - began < SOON


LOOK = {"text": "a" * 250, "prefix": [100] * 250, "beam": 16, "max_extra": 300, "alternatives": 10}


def test_a_large_look_takes_little_memory_and_ends_when_the_client_disconnects(server):
    before = peak(server, 0.2)
    connection = server.send("/v1/look", LOOK)
    during = peak(server, 3)
    connection.close()
    assert during - before < 500e6, (before, during)
    until(lambda: not working(server), 20)
    short_request(server)


def test_a_large_look_is_answered_within_its_memory_limit(server):
    before = peak(server, 0.2)
    answers = []
    asked = {**LOOK, "beam": 2, "max_extra": 5}
    asking = threading.Thread(target=lambda: answers.append(server.post("/v1/look", json=asked)))
    asking.start()
    during = peak(server, 60, during=asking.is_alive)
    asking.join()
    assert answers[0].status_code == 200 and during - before < 500e6, (before, during, answers)


def test_thousands_of_sentences_do_not_delay_interactive_requests(server):
    connection = server.send("/v1/translate", {"text": "\n".join(["Wie geht es dir?", "Ich habe Hunger."] * 2000)})
    until(lambda: server.get("/ready").json().get("queued", 0) > 2000)
    waited = sorted(short_request(server) for _ in range(5))
    assert server.get("/ready").json()["queued"] > 100, "the long request has ended already"
    assert waited[2] < 10
    connection.close()
    until(lambda: idle(server), 20)


def test_a_client_cannot_fill_the_queue(server):
    connections = [server.send("/v1/translate", {"text": "a " * 25_000}) for _ in range(12)]
    answer = server.post("/v1/translate", json={"text": "a " * 25_000})
    assert answer.status_code == 429 and answer.headers["retry-after"]
    for connection in connections:
        connection.close()
    until(lambda: idle(server), 20)


@pytest.mark.parametrize("path", ["/v1/translate", "/v1/stream", "/v1/look", "/translate", "/detect"])
def test_every_route_detects_a_disconnected_client(server, path):
    until(lambda: idle(server) and not working(server), 30)
    text = "a" * 250 if path == "/v1/look" else "a" * 4000
    libre = {"q": text, "source": "de", "target": "en", "alternatives": 15}
    ours = {"text": text, "max_extra": 400} | ({} if path == "/v1/stream" else {"beam": 8})
    connection = server.send(path, ours if path.startswith("/v1") else libre)
    time.sleep(0.7)
    connection.close()
    until(lambda: idle(server) and not working(server), 20)


def test_a_stopped_worker_is_replaced_and_its_sentences_are_translated(server):
    before = server.workers()
    for pid in before:
        os.kill(pid, signal.SIGSTOP)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(server.post("/v1/translate", json={"text": POOL})))
    asking.start()
    found = []
    until(lambda: found.append(server.get("/ready")) or found[-1].status_code == 503)
    assert found[-1].json()["error"] == "no worker is ready" and server.get("/health").status_code == 200
    asking.join(60)
    assert answers[0].status_code == 200
    until(lambda: server.get("/ready").status_code == 200)
    until(lambda: len(server.workers()) == len(before))
    assert not set(before) & set(server.workers())


def test_a_server_with_stopped_workers_shuts_down():
    with serving("de-en") as server:
        connection = server.send("/v1/translate", {"text": "a" * 50_000})
        time.sleep(1)
        for pid in server.workers():
            os.kill(pid, signal.SIGSTOP)
        connection.close()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0


def test_refusals_have_security_headers(server):
    for answer, status in (
        (server.get("/nowhere"), 404),
        (server.post("/v1/translate", json={"text": 5}), 422),
        (server.post("/v1/translate", json={"text": "a"}, headers={"Origin": "http://evil.example"}), 403),
        (server.post("/v1/translate", content=b"x" * 3_000_000), 413),
    ):
        assert answer.status_code == status and answer.headers.get_list("x-content-type-options") == ["nosniff"]


def test_an_empty_key_variable_is_refused():
    command = [sys.executable, "-m", "regard", "serve", "de-en", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | {"REGARD_API_KEYS": ""})
    assert done.returncode == 1 and "REGARD_API_KEYS is set but has no keys" in done.stderr

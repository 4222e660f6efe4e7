"""Under load nobody is lost or given another's translation, memory stays flat, and a stop drops nothing accepted."""

import os
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.serve.conftest import serving
from tests.serve.load import POOL, Clients, expected

SOAK = float(os.environ.get("REGARD_SOAK", "60"))  # seconds; `make soak` takes thirty minutes
MIXED = ["one"] * 6 + ["many", "libre", "libre", "stream", "leave", "look", "mistake"]


@pytest.fixture(scope="module")
def right():
    return expected()


def test_mixed_load_is_answered_rightly_and_memory_stays_flat(right):
    with serving() as server:
        clients = Clients(server.url, right, count=16, kinds=MIXED)
        clients.start()
        time.sleep(SOAK / 3)
        warm = server.resident()
        time.sleep(2 * SOAK / 3)
        after = server.resident()
        clients.stop()
        numbers = server.get("/metrics").text
    assert clients.wrong == []
    assert clients.told["lost"] == 0 and clients.told["one 200"] > 20, clients.told
    assert all(clients.told[f"{kind} 200"] for kind in ("many", "libre", "stream", "look")), clients.told
    assert {key for key in clients.told if key.endswith(("404", "422"))} >= {"mistake 422", "mistake 404"}
    assert after - warm < 60e6, (warm, after)
    assert "regard_queued_sentences 0.0" in numbers


def test_a_stop_under_load_drops_nothing_that_was_accepted(right):
    with serving("de-en") as server:
        clients = Clients(server.url, right, count=16, kinds=["one", "many"])
        clients.start()
        time.sleep(3)
        clients.stopping.set()  # who is being answered now is answered; nobody asks again
        time.sleep(0.2)  # for those who were about to
        server.process.send_signal(signal.SIGTERM)
        clients.stop()
        assert server.process.wait(60) == 0
    assert clients.wrong == [] and clients.told["one 200"] > 0


def test_what_was_accepted_before_a_stop_is_answered(right):
    answers, refused = [], []
    with serving("de-en") as server:
        asked = POOL * 20

        def ask():
            try:
                answers.append(server.post("/v1/translate", json={"text": asked, "beam": 8}))
            except httpx.ConnectError:
                refused.append(True)  # it was not accepted

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 15  # by then all four are here, however slow the machine
        while server.get("/ready").json()["queued"] < 3 * len(asked) + 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(120)
        assert server.process.wait(90) == 0
    assert [answer.status_code for answer in answers] == [200] * (4 - len(refused)) and answers
    assert all(len(answer.json()["translations"]) == len(asked) for answer in answers)


def test_slow_clients_are_sent_away_and_keep_nobody_else_waiting(right):
    with serving("de-en") as server:
        slow = [socket.create_connection(("127.0.0.1", server.port), timeout=40) for _ in range(50)]
        for connection in slow:
            connection.sendall(
                b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
            )
        assert server.post("/v1/translate", json={"text": POOL[0]}).json()["translations"][0]["text"] == right[POOL[0]]
        answer = slow[0].recv(1000)
        assert b" 408 " in answer.splitlines()[0]
        for connection in slow:
            connection.close()


def test_a_worker_that_is_killed_is_replaced_and_nobody_notices(right):
    with serving("de-en") as server:
        workers = [int(one) for one in children(server.process.pid)]
        assert len(workers) >= 2
        clients = Clients(server.url, right, count=8, kinds=["one", "many"])
        clients.start()
        time.sleep(1)
        os.kill(workers[0], signal.SIGKILL)
        time.sleep(6)
        clients.stop()
        assert len(children(server.process.pid)) == len(workers)
    assert clients.wrong == [] and not [key for key in clients.told if not key.endswith("200")]


def test_workers_end_with_the_server_even_when_it_is_killed():
    with serving("de-en") as server:
        workers = children(server.process.pid)
        server.process.kill()
        deadline = time.monotonic() + 30
        while any(alive(one) for one in workers):
            assert time.monotonic() < deadline, "a worker lives on"
            time.sleep(0.2)


def alive(pid):
    path = Path(f"/proc/{pid}/cmdline")
    return path.exists() and path.read_text() != ""  # a process that has ended but was not waited for has no command


def children(pid):
    """Processes that any of its threads started."""
    return [one for path in Path(f"/proc/{pid}/task").glob("*/children") for one in path.read_text().split()]

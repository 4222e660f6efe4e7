"""Under load every request gets its own translation, memory stays flat, and a shutdown drops no accepted request."""

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.serve.conftest import serving
from tests.serve.load import POOL, Clients, WorkerKiller, expected_translations

SOAK = float(os.environ.get("REGARD_SOAK", "8"))  # seconds; `make soak` takes thirty minutes
OUT = os.environ.get("REGARD_SOAK_OUT")  # a file for the measurements
INTERACTIVE = ["one"] * 6 + ["libre", "libre", "stream", "look", "mistake"]
BULK = (200, 1000, 3000) if SOAK >= 300 else (200,)  # sentences of a bulk request
HOSTILE = ["endless", "far_look", "slow_reader", "half_open", "leave"]


@pytest.fixture(scope="module")
def expected():
    return expected_translations()


@pytest.mark.slow
def test_hostile_load_does_not_affect_interactive_clients_or_memory(expected):
    """Run interactive, bulk and hostile clients while workers are killed and stopped."""
    with serving("de-en") as server:
        interactive = Clients(server.url, expected, count=8, kinds=INTERACTIVE, network=1, pause=0.3)
        bulk = Clients(server.url, expected, count=1, kinds=["bulk"], network=2, bulk=BULK)
        hostile = Clients(server.url, expected, count=3, kinds=HOSTILE, network=3, pause=0.5)
        killer = WorkerKiller(server, every=min(20, SOAK / 3))
        everybody = (killer, interactive, bulk, hostile)
        for one in everybody:
            one.start()
        memory = []
        ends = time.monotonic() + SOAK
        while time.monotonic() < ends:
            time.sleep(min(5, SOAK / 10))
            workers = [server.resident(pid) for pid in server.workers() if alive(pid)]
            memory.append((server.resident(), max(workers, default=0)))
        for one in everybody:
            one.stopping.set()
        for one in everybody:
            one.stop()
        until(lambda: server.get("/ready").json().get("queued") == 0)
        numbers = report(interactive, bulk, hostile, killer, memory, server.get("/metrics").text)
    if OUT:
        Path(OUT).write_text(json.dumps(numbers, indent=1) + "\n")
    assert interactive.wrong == bulk.wrong == hostile.wrong == []
    assert not [key for key in interactive.counts if key.endswith(("429", "500", "503", "lost"))], interactive.counts
    assert interactive.counts["one 200"] > 10 and killer.done, numbers
    if SOAK >= 300:  # needs a machine with two free cores
        warm = len(memory) // 3
        assert numbers["interactive"]["p99_seconds"] < 2, numbers
        assert memory[-1][0] - memory[warm][0] < 60e6, numbers


def report(interactive, bulk, hostile, killer, memory, metrics):
    """Return the measurements."""
    seconds = sorted(taken for taken, _ in interactive.seconds)
    of_kind = {kind: sorted(taken for taken, one in interactive.seconds if one == kind) for kind in set(INTERACTIVE)}
    quarter = len(memory) // 4
    return {
        "seconds": SOAK,
        "interactive": {
            "requests": len(seconds),
            "p50_seconds": round(seconds[len(seconds) // 2], 3),
            "p99_seconds": round(seconds[int(0.99 * len(seconds))], 3),
            "most_seconds": round(seconds[-1], 3),
            "p99_seconds_of": {
                kind: round(found[int(0.99 * len(found))], 3) for kind, found in of_kind.items() if found
            },
            "answers": dict(interactive.counts),
        },
        "greedy": dict(bulk.counts),
        "hostile": dict(hostile.counts),
        "signals": dict(killer.done),
        "server_mib": [round(memory[at][0] / 2**20) for at in (0, quarter, 2 * quarter, 3 * quarter, -1)],
        "largest_worker_mib": round(max(worker for _, worker in memory) / 2**20),
        "replaced_workers": int(float(metrics.partition("\nregard_replaced_workers ")[2].partition("\n")[0])),
        "translated_sentences": int(float(metrics.partition("\nregard_translated_sentences ")[2].partition("\n")[0])),
        "wrong": len(interactive.wrong + bulk.wrong + hostile.wrong),
    }


@pytest.mark.slow
def test_a_shutdown_under_load_drops_no_accepted_request(expected):
    with serving("de-en") as server:
        clients = Clients(server.url, expected, count=16, kinds=["one", "many"])
        clients.start()
        time.sleep(1.5)
        clients.stopping.set()  # current requests are answered; no new ones are sent
        time.sleep(0.2)  # for requests that were just being sent
        server.process.send_signal(signal.SIGTERM)
        clients.stop()
        assert server.process.wait(60) == 0
    assert clients.wrong == [] and clients.counts["one 200"] > 0


@pytest.mark.slow
def test_requests_accepted_before_a_shutdown_are_answered(expected):
    answers, refused = [], []
    with serving("de-en") as server:
        asked = POOL * 5

        def ask():
            try:
                answers.append(server.post("/v1/translate", json={"text": asked, "beam": 8}))
            except httpx.ConnectError:
                refused.append(True)  # the request was not accepted

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 15  # enough for all four to arrive, even on a slow machine
        while server.get("/ready").json()["queued"] < 2 * len(asked) and time.monotonic() < deadline:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(120)
        assert server.process.wait(90) == 0
    assert [answer.status_code for answer in answers] == [200] * (4 - len(refused)) and answers
    assert all(len(answer.json()["translations"]) == len(asked) for answer in answers)


@pytest.mark.slow
def test_slow_clients_time_out_and_do_not_delay_others(expected):
    with serving("de-en") as server:
        slow = [socket.create_connection(("127.0.0.1", server.port), timeout=40) for _ in range(50)]
        for connection in slow:
            connection.sendall(
                b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
            )
        assert (
            server.post("/v1/translate", json={"text": POOL[0]}).json()["translations"][0]["text"] == expected[POOL[0]]
        )
        answer = slow[0].recv(1000)
        assert b" 408 " in answer.splitlines()[0]
        for connection in slow:
            connection.close()


@pytest.mark.slow
def test_a_killed_worker_is_replaced_without_an_error_for_clients(expected):
    with serving("de-en") as server:
        workers = server.workers()
        assert len(workers) >= 2
        clients = Clients(server.url, expected, count=8, kinds=["one", "many"])
        clients.start()
        time.sleep(1)
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: len(set(server.workers()) - {workers[0]}) == len(workers))
        time.sleep(1)
        clients.stop()
    assert clients.wrong == [] and not [key for key in clients.counts if not key.endswith("200")]


@pytest.mark.slow
def test_workers_end_when_the_server_is_killed():
    with serving("de-en") as server:
        workers = server.workers()
        server.process.kill()
        deadline = time.monotonic() + 30
        while any(alive(one) for one in workers):
            assert time.monotonic() < deadline, "a worker is still alive"
            time.sleep(0.2)


def alive(pid):
    path = Path(f"/proc/{pid}/cmdline")
    return path.exists() and path.read_text() != ""  # a zombie has no command line


def until(condition, seconds=60):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it never came to this"
        time.sleep(0.1)

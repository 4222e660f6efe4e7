"""Concurrent clients of many kinds that check the responses they get."""

import itertools
import json
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import suppress

import httpx

import regard

POOL = [
    "Wo ist der Bahnhof?", "Ich habe Hunger.", "Guten Morgen!", "Tom hat gestern ein neues Auto gekauft.",
    "Kannst du mir bitte helfen?", "Meine Schwester wohnt in Berlin.", "Es regnet.", "Das Buch liegt auf dem Tisch.",
    "Ich weiß nicht, was ich sagen soll.", "Wir gehen heute Abend ins Kino.", "Er spricht sehr gut Englisch.",
    "Wie spät ist es?", "Die Kinder spielen im Garten.", "Ich muss morgen früh aufstehen.", "Das ist mir egal.",
    "Vielen Dank für deine Hilfe!",
]  # fmt: skip


def expected_translations():
    """Return the translation of each sentence of the pool, computed without a server."""
    translator = regard.load("de-en", device="cpu")
    return dict(zip(POOL, translator.translate(POOL), strict=True))


class Clients:
    """Threads that send requests, check the responses, and count them."""

    def __init__(self, url, expected, *, count, kinds, network=0, pause=0.0, bulk=(100,)):
        self.url, self.expected, self.kinds = url, expected, kinds
        self.network, self.pause = network, pause  # third byte of their addresses; seconds between requests
        self.bulk = bulk  # numbers of sentences of large requests
        self.stopping = threading.Event()
        self.counts, self.wrong, self.seconds = Counter(), [], []
        self.threads = [threading.Thread(target=self._send_requests, args=(number,)) for number in range(count)]

    def start(self):
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in self.threads), "a request was never answered"

    def _send_requests(self, number):
        draw = random.Random(number)
        # Every client has its own address, as clients on other machines would.
        transport = httpx.HTTPTransport(local_address=f"127.0.{self.network}.{1 + number}")
        with httpx.Client(base_url=self.url, timeout=150, transport=transport) as client:
            while not self.stopping.is_set():
                kind = draw.choice(self.kinds)
                began = time.monotonic()
                try:
                    getattr(self, f"_{kind}")(client, draw)
                except httpx.TransportError as error:
                    # No request is sent once the server is being stopped, so this response was lost.
                    self.wrong.append((kind, repr(error)))
                    self.counts["lost"] += 1
                    return
                self.seconds.append((time.monotonic() - began, kind))
                self.stopping.wait(self.pause)

    def _check(self, kind, answer, sources, texts):
        self.counts[f"{kind} {answer.status_code}"] += 1
        if sources and answer.status_code == 200 and texts() != [self.expected[source] for source in sources]:
            self.wrong.append((kind, sources, texts()))
        if answer.status_code >= 500 and answer.status_code != 503:
            self.wrong.append((kind, answer.status_code, answer.text[:200]))

    def _one(self, client, draw):
        source = draw.choice(POOL)
        answer = client.post("/v1/translate", json={"text": source, "model": "de-en"})
        self._check("one", answer, [source], lambda: [answer.json()["translations"][0]["text"]])

    def _many(self, client, draw):
        sources = draw.choices(POOL, k=draw.randint(2, 20))
        answer = client.post("/v1/translate", json={"text": sources, "model": "de-en"})
        self._check("many", answer, sources, lambda: [one["text"] for one in answer.json()["translations"]])

    def _libre(self, client, draw):
        source = draw.choice(POOL)
        answer = client.post("/translate", data={"q": source, "source": "de", "target": "en"})
        self._check("libre", answer, [source], lambda: [answer.json()["translatedText"]])

    def _stream(self, client, draw):
        with client.stream("POST", "/v1/stream", json={"text": draw.choice(POOL), "model": "de-en"}) as answer:
            lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
        self.counts[f"stream {answer.status_code}"] += 1
        last = json.loads(lines[-1][6:])
        if not last.get("done") or "error" in last:
            self.wrong.append(("stream", lines[-1]))

    def _leave(self, client, draw):
        with client.stream("POST", "/v1/stream", json={"text": " ".join(POOL[:5])}) as answer:
            next(answer.iter_lines())
        self.counts["leave"] += 1

    def _look(self, client, draw):
        source = draw.choice(POOL)
        answer = client.post("/v1/look", json={"text": source, "model": "de-en", "alternatives": 1})
        self._check("look", answer, [source], lambda: [answer.json()["target"]["text"]])

    def _mistake(self, client, draw):
        asked = draw.choice(
            [{"text": 5}, {"text": "a", "beam": 99}, {"text": "a", "model": "x"}, {"text": "\x00" * 10}]
        )
        answer = client.post("/v1/translate", json=asked)
        self._check("mistake", answer, [], lambda: [])

    def _bulk(self, client, draw):
        sources = draw.choices(POOL, k=draw.choice(self.bulk))
        answer = client.post("/v1/translate", json={"text": "\n".join(sources), "model": "de-en"})
        self._check(
            "bulk", answer, sources, lambda: [one["text"] for one in answer.json()["translations"][0]["sentences"]]
        )
        if answer.status_code in (429, 503):
            time.sleep(1)

    def _endless(self, client, draw):
        """Send a very long word and disconnect."""
        body = {"text": "a" * draw.choice([300, 5000, 60_000]), "model": "de-en", "beam": draw.choice([1, 4, 16])}
        self._leave_after(draw.choice([0.1, 2.0]), "/v1/translate", body)

    def _far_look(self, client, draw):
        body = {"text": "b" * 250, "prefix": [100] * 200, "beam": 16, "max_extra": 1000, "alternatives": 10}
        self._leave_after(draw.choice([0.1, 3.0]), "/v1/look", body)

    def _leave_after(self, seconds, path, body):
        with self._connect(path, body) as connection:
            connection.settimeout(seconds)
            with suppress(TimeoutError, ConnectionError):
                connection.recv(100)
        self.counts[f"left {path}"] += 1

    def _slow_reader(self, client, draw):
        """Request a large response and read nothing for a while."""
        with self._connect("/v1/translate", {"text": POOL * 20, "nbest": 4, "model": "de-en"}) as connection:
            self.stopping.wait(10)
            with suppress(TimeoutError, ConnectionError):
                connection.recv(1000)
        self.counts["slow reader"] += 1

    def _half_open(self, client, draw):
        """Open connections whose headers never end."""
        found = [self._connect("/v1/translate", None) for _ in range(20)]
        self.stopping.wait(3)
        for connection in found:
            connection.close()
        self.counts["half-open"] += 1

    def _connect(self, path, body):
        host, _, port = self.url.removeprefix("http://").partition(":")
        source = f"127.0.{self.network}.{200 + threading.get_ident() % 50}"
        connection = socket.create_connection((host, int(port)), timeout=30, source_address=(source, 0))
        content = json.dumps(body).encode()
        head = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        head += [f"Content-Length: {len(content)}", "", ""] if body else ["X-Never: "]
        with suppress(ConnectionError):
            connection.sendall("\r\n".join(head).encode() + (content if body else b""))
        return connection


class WorkerKiller:
    """Kills or stops a random worker at intervals."""

    def __init__(self, server, *, every):
        self.server, self.every, self.done = server, every, Counter()
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def start(self):
        self.thread.start()

    def stop(self):
        self.stopping.set()
        self.thread.join()

    def _run(self):
        draw = random.Random(0)
        for signal_number in itertools.cycle([signal.SIGSTOP, signal.SIGKILL]):
            if self.stopping.wait(self.every):
                return
            with suppress(ProcessLookupError, IndexError):
                os.kill(draw.choice(self.server.workers()), signal_number)
                self.done[signal_number.name] += 1

"""Many clients at once, of many kinds, who know what they should be told."""

import json
import random
import threading
import time
from collections import Counter

import httpx

import regard

POOL = [
    "Wo ist der Bahnhof?", "Ich habe Hunger.", "Guten Morgen!", "Tom hat gestern ein neues Auto gekauft.",
    "Kannst du mir bitte helfen?", "Meine Schwester wohnt in Berlin.", "Es regnet.", "Das Buch liegt auf dem Tisch.",
    "Ich weiß nicht, was ich sagen soll.", "Wir gehen heute Abend ins Kino.", "Er spricht sehr gut Englisch.",
    "Wie spät ist es?", "Die Kinder spielen im Garten.", "Ich muss morgen früh aufstehen.", "Das ist mir egal.",
    "Vielen Dank für deine Hilfe!",
]  # fmt: skip


def expected():
    """What each sentence of the pool should become, by the plain command's code."""
    translator = regard.load("de-en", device="cpu")
    return dict(zip(POOL, translator.translate(POOL), strict=True))


class Clients:
    """Threads that ask, check what they are told, and count."""

    def __init__(self, url, right, *, count, kinds):
        self.url, self.right, self.kinds = url, right, kinds
        self.stopping = threading.Event()
        self.told, self.wrong, self.seconds = Counter(), [], []
        self.threads = [threading.Thread(target=self._ask_on, args=(number,)) for number in range(count)]

    def start(self):
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in self.threads), "somebody was never answered"

    def _ask_on(self, number):
        draw = random.Random(number)
        with httpx.Client(base_url=self.url, timeout=100) as client:
            while not self.stopping.is_set():
                kind = draw.choice(self.kinds)
                began = time.monotonic()
                try:
                    getattr(self, f"_{kind}")(client, draw)
                except (
                    httpx.TransportError
                ) as error:  # nobody asks any more once a stop is near, so this is an answer lost
                    self.wrong.append((kind, repr(error)))
                    self.told["lost"] += 1
                    return
                self.seconds.append(time.monotonic() - began)

    def _check(self, kind, answer, sources, texts):
        self.told[f"{kind} {answer.status_code}"] += 1
        if sources and answer.status_code == 200 and texts() != [self.right[source] for source in sources]:
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
        self.told[f"stream {answer.status_code}"] += 1
        last = json.loads(lines[-1][6:])
        if not last.get("done") or "error" in last:
            self.wrong.append(("stream", lines[-1]))

    def _leave(self, client, draw):
        with client.stream("POST", "/v1/stream", json={"text": " ".join(POOL[:5])}) as answer:
            next(answer.iter_lines())
        self.told["leave"] += 1

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

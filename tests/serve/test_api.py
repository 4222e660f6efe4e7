"""The API of a real server: what it gives, what it refuses, and in which words."""

import contextlib
import itertools
import json
import socket
import subprocess
import sys
import time

import httpx
import pytest

import regard

TEXT = "Wo ist der Bahnhof? Ich habe Hunger.\n\nGuten Morgen!"


@pytest.fixture(scope="module")
def plain():
    return regard.load("de-en", device="cpu")


def test_a_text_is_translated_sentence_by_sentence_and_keeps_its_form(server, plain):
    answer = server.post("/v1/translate", json={"text": TEXT, "model": "de-en"}).json()
    expected = plain.translate(["Wo ist der Bahnhof?", "Ich habe Hunger.", "Guten Morgen!"])
    (found,) = answer["translations"]
    assert [one["text"] for one in found["sentences"]] == expected
    assert found["text"] == "{} {}\n\n{}".format(*expected)


def test_search_can_be_asked_for(server, plain):
    answer = server.post("/v1/translate", json={"text": ["Guten Morgen!"], "nbest": 3, "beam": 6}).json()
    nbest = answer["translations"][0]["sentences"][0]["nbest"]
    assert len(nbest) == 3
    assert [one["score"] for one in nbest] == sorted((one["score"] for one in nbest), reverse=True)


def test_an_empty_text_stays_empty(server):
    answer = server.post("/v1/translate", json={"text": ["", " \n "]}).json()
    assert [one["text"] for one in answer["translations"]] == ["", " \n "]


def test_a_stream_grows_and_ends_with_all_of_it(server):
    with server_stream(server, {"text": "Ich liebe dich. Wo bist du?", "model": "de-en"}) as events:
        events = list(events)
    assert events[-1]["done"] is True
    texts = [event["text"] for event in events]
    assert len(texts) > 5 and all(len(one) <= len(two) + 1 for one, two in itertools.pairwise(texts))
    greedy = server.post("/v1/translate", json={"text": "Ich liebe dich. Wo bist du?", "model": "de-en", "beam": 1})
    assert texts[-1] == greedy.json()["translations"][0]["text"]


@contextlib.contextmanager
def server_stream(server, body):
    """The events of a stream."""
    with httpx.stream("POST", server.url + "/v1/stream", json=body, timeout=60) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data: "))
        yield (json.loads(line.removeprefix("data: ")) for line in lines)


def test_a_look_shows_attention_and_can_be_made_to_begin_otherwise(server):
    asked = {"text": "Ich liebe dich.", "model": "de-en"}
    trace = server.post("/v1/look", json=asked).json()
    assert {one["name"] for one in trace["attentions"]} == {"encoder", "decoder", "encoder-decoder"}
    other = trace["alternatives"][0][0]
    forced = server.post("/v1/look", json={**asked, "prefix": [other["id"]]}).json()
    assert forced["target"]["ids"][0] == other["id"]
    assert forced["target"]["text"] != trace["target"]["text"]


def test_models_are_listed_with_their_languages_and_cards(server):
    models = {one["name"]: one for one in server.get("/v1/models").json()}
    assert models.keys() == {"de-en", "en-de"}
    assert (models["de-en"]["source"], models["de-en"]["target"]) == ("de", "en")
    assert models["de-en"]["card"]["results"]


def test_health_readiness_and_numbers(server):
    assert server.get("/health").json() == {"status": "ok"}
    assert server.get("/ready").json()["status"] == "ready"
    server.post("/v1/translate", json={"text": "Ja."})
    numbers = server.get("/metrics").text
    assert 'regard_requests_total{route="/v1/translate",status="200"}' in numbers
    assert 'regard_request_seconds_bucket{le="+Inf"}' in numbers


DEEP = "[" * 100_000 + "]" * 100_000
REFUSED = {
    "a model that is not there": ({"json": {"text": "a", "model": "xx"}}, 404, "there are de-en, en-de"),
    "a beam too wide": ({"json": {"text": "a", "beam": 10_000}}, 422, "beam"),
    "an unknown option": ({"json": {"text": "a", "baem": 4}}, 422, "baem"),
    "ten thousand options": ({"json": {"text": "a", **{f"o{n}": n for n in range(10_000)}}}, 422, "o0"),
    "no text": ({"json": {}}, 422, "text"),
    "a number for a text": ({"json": {"text": 5}}, 422, "text"),
    "half a surrogate pair": ({"content": b'{"text": "\\ud800"}'}, 422, "unicode"),
    "deep JSON": ({"content": DEEP.encode()}, 4, ""),
    "no JSON": ({"content": b"\xff\xfe{"}, 4, ""),
    "a text too long": ({"json": {"text": "a " * 60_000}}, 422, "100000"),
    "a body too large": ({"content": b'{"text": "' + b"a" * 3_000_000 + b'"}'}, 413, "larger"),
    "too many texts": ({"json": {"text": ["a"] * 5000}}, 422, "1000"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_one_sentence_and_no_traceback(server, name):
    options, status, words = REFUSED[name]
    answer = server.post("/v1/translate", headers={"content-type": "application/json"}, **options)
    assert answer.status_code == status or answer.status_code // 100 == status, answer.text
    assert words in answer.json()["error"] and "Traceback" not in answer.text
    assert len(answer.text) < 500


@pytest.mark.parametrize(
    "text", ["\x00\x01\x02", "a\u202eb\u200d\ufeff", "\U0001f600" * 50, "a" * 2000, "\r\n\t", "\u0301" * 300]
)
def test_odd_texts_are_translated_somehow(server, text):
    assert server.post("/v1/translate", json={"text": text}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/assets/../app.py", "/assets/%2e%2e%2fapp.py", "/assets//etc/passwd", "/../../etc/passwd"]
)
def test_only_the_pages_own_files_are_given(server, path):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = connection.makefile("rb").read()
    assert b" 404 " in answer.splitlines()[0] and b"root:" not in answer


def test_pages_may_load_nothing_from_elsewhere(server):
    answer = server.get("/")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    for name in ("page.js", "page.css", "attention.js", "look.css", "docs.js"):
        assert server.get(f"/assets/{name}").status_code == 200
    assert "http://" not in answer.text and "https://" not in answer.text


def test_clients_that_go_away_in_the_middle_leave_nothing_behind(server):
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            body = json.dumps({"text": "Ich liebe dich. " * 20})
            head = [
                "POST /v1/stream HTTP/1.1",
                "Host: localhost",
                "Content-Type: application/json",
                f"Content-Length: {len(body)}",
            ]
            connection.sendall("\r\n".join([*head, "", body]).encode())
            connection.recv(100)
    deadline = time.monotonic() + 60
    while server.get("/ready").json()["queued"] and time.monotonic() < deadline:
        time.sleep(0.2)
    assert server.get("/ready").json()["queued"] == 0
    assert server.post("/v1/translate", json={"text": "Ja."}).status_code == 200


@pytest.mark.parametrize("field", ["q", "source", "target", "api_key"])
def test_half_a_character_is_refused_by_the_other_api_too(server, field):
    asked = {"q": "Ja.", "source": "de", "target": "en"} | {field: "X"}
    body = json.dumps(asked).replace('"X"', '"\\ud800"')
    answer = server.post("/translate", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400 and answer.json()["error"]


def test_a_text_of_too_many_sentences_is_refused_at_once(server):
    answer = server.post("/v1/translate", json={"text": "a\n" * 40_000})
    assert answer.status_code == 413 and "4,096 sentences" in answer.json()["error"]


def test_a_port_that_is_taken_is_one_sentence_and_an_end(server):
    command = [sys.executable, "-m", "regard", "serve", "de-en", "--port", str(server.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "in use" in done.stderr and "Traceback" not in done.stderr


def test_a_word_without_end_is_streamed_within_limits(server):
    with server_stream(server, {"text": "x" * 1500, "max_extra": 5}) as events:
        assert list(events)[-1]["done"] is True

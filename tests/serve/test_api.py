"""The API of a real server: responses, refusals and error messages."""

import asyncio
import contextlib
import itertools
import json
import re
import socket
import subprocess
import sys
import time
from importlib import resources
from types import SimpleNamespace

import httpx
import pytest

import regard
from regard.serve.access import Access, Limits
from regard.serve.middleware import Metrics
from regard.serve.schema import ModelInfo
from regard.serve.server import make_app

TEXT = "Wo ist der Bahnhof? Ich habe Hunger.\n\nGuten Morgen!"


@pytest.fixture(scope="module")
def plain():
    return regard.load("de-en", device="cpu")


def test_a_text_is_translated_by_sentences_and_keeps_its_spaces(server, plain):
    answer = server.post("/v1/translate", json={"text": TEXT, "model": "de-en"}).json()
    expected = plain.translate(["Wo ist der Bahnhof?", "Ich habe Hunger.", "Guten Morgen!"])
    (found,) = answer["translations"]
    assert [one["text"] for one in found["sentences"]] == expected
    assert found["text"] == "{} {}\n\n{}".format(*expected)


def test_search_options_are_applied(server, plain):
    answer = server.post("/v1/translate", json={"text": ["Guten Morgen!"], "nbest": 3, "beam": 6}).json()
    nbest = answer["translations"][0]["sentences"][0]["nbest"]
    assert len(nbest) == 3
    assert [one["score"] for one in nbest] == sorted((one["score"] for one in nbest), reverse=True)


def test_samples_and_diverse_beams_are_those_of_the_library(server, plain):
    text = "Ich habe gestern ein neues Auto gekauft."
    for settings in (
        {"sample": True, "beam": 3, "seed": 7},
        {"beam": 4, "beam_groups": 2, "no_repeat_ngram": 3},
        {"beam": 6, "mbr": "chrf"},
        {"beam": 6, "coverage_penalty": 0.4},
    ):
        body = {"text": text, "model": "de-en", "nbest": 3, "token_scores": True, **settings}
        (found,) = server.post("/v1/translate", json=body).json()["translations"][0]["sentences"]
        options = regard.SearchOptions(nbest=3, token_scores=True, **settings)
        [expected] = plain.stream([text], options=options)
        assert [one["text"] for one in found["nbest"]] == [one.text for one in expected]
        assert [token[0] for token in found["nbest"][0]["tokens"]] == [token.text for token in expected[0].tokens]


def test_confidence_is_returned_if_it_is_asked_for(server):
    body = {"text": "Guten Morgen! Wo ist der alte Bahnhof?", "model": "de-en"}
    for answered in server.post("/v1/translate", json=body).json()["translations"][0]["sentences"]:
        assert answered["nbest"][0]["confidence"] is None and answered["nbest"][0]["words"] is None
    for answered in server.post("/v1/translate", json={**body, "confidence": True}).json()["translations"][0][
        "sentences"
    ]:
        (best,) = answered["nbest"]
        assert [word for word, _ in best["words"]] == best["text"].split() and 0 < best["confidence"] < 1
        assert all(0 < sure <= 1 for _, sure in best["words"])


def test_translations_have_what_is_demanded_and_other_requests_in_the_batch_are_not_refused(server):
    body = {"text": "Das Haus ist alt. Die Autos sind neu.", "model": "de-en"}
    terms = {"glossary": {"Haus": "building", "Auto": "vehicle|vehicles"}}
    (found,) = server.post("/v1/translate", json={**body, **terms}).json()["translations"]
    first, second = (one["text"] for one in found["sentences"])
    assert "building" in first and "vehicle" in second
    one = {
        **body,
        "text": "Anna Schmidt sah das Haus.",
        "keep": ["Anna Schmidt"],
        "phrases": [["building"]],
        "prefix": "Then",
    }
    (answer,) = server.post("/v1/translate", json=one).json()["translations"][0]["sentences"]
    assert answer["text"].startswith("Then") and "building" in answer["text"] and "Anna Schmidt" in answer["text"]
    assert answer["nbest"][0]["lacks"] == []
    refusals = {
        "phrases and prefix are for a text of one sentence": {**body, "phrases": ["building"]},
        "phrases need a beam of at least 2": {**one, "beam": 1},
        "phrases are found by beam search, without sample": {**one, "sample": True},
    }
    for sentence, refused in refusals.items():
        answer = server.post("/v1/translate", json=refused)
        assert answer.status_code == 422 and sentence in answer.json()["error"], answer.json()
    many = server.post("/v1/translate", json={**body, "glossary": {str(number): "a" for number in range(201)}})
    assert many.status_code == 422


def test_an_empty_text_stays_empty(server):
    answer = server.post("/v1/translate", json={"text": ["", " \n "]}).json()
    assert [one["text"] for one in answer["translations"]] == ["", " \n "]


def test_a_stream_grows_and_ends_with_the_greedy_translation(server):
    with server_stream(server, {"text": "Ich liebe dich. Wo bist du?", "model": "de-en"}) as events:
        events = list(events)
    assert events[-1]["done"] is True
    texts = [event["text"] for event in events]
    assert len(texts) > 5 and all(len(one) <= len(two) + 1 for one, two in itertools.pairwise(texts))
    greedy = server.post("/v1/translate", json={"text": "Ich liebe dich. Wo bist du?", "model": "de-en", "beam": 1})
    assert texts[-1] == greedy.json()["translations"][0]["text"]


@contextlib.contextmanager
def server_stream(server, body):
    """Yield the events of a stream."""
    with httpx.stream("POST", server.url + "/v1/stream", json=body, timeout=60) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data: "))
        yield (json.loads(line.removeprefix("data: ")) for line in lines)


def test_a_look_has_attention_and_obeys_a_forced_prefix(server):
    asked = {"text": "Ich liebe dich.", "model": "de-en"}
    trace = server.post("/v1/look", json=asked).json()
    assert {one["name"] for one in trace["attentions"]} == {"encoder", "decoder", "encoder-decoder"}
    other = trace["alternatives"][0][0]
    forced = server.post("/v1/look", json={**asked, "prefix": [other["id"]]}).json()
    assert forced["target"]["ids"][0] == other["id"]
    assert forced["target"]["text"] != trace["target"]["text"]


def test_models_are_listed_with_their_languages_and_cards(server):
    models = {one["name"]: one for one in server.get("/v1/models").json()}
    assert models.keys() == {"de-en", "en-de", "zh-en"}
    assert (models["de-en"]["source"], models["de-en"]["target"]) == ("de", "en")
    assert models["de-en"]["card"]["results"]


def test_the_page_reads_only_existing_fields_of_a_model():
    scripts = [one for one in (resources.files("regard.serve") / "assets").iterdir() if one.name.endswith(".js")]
    read = {name for one in scripts for name in re.findall(r"(?:current\(\)|\bmodel)\.(\w+)", one.read_text("utf-8"))}
    assert {"name", "non_autoregressive"} <= read <= set(ModelInfo.model_fields)


def test_health_readiness_and_metrics(server):
    assert server.get("/health").json() == {"status": "ok"}
    assert server.get("/ready").json()["status"] == "ready"
    server.post("/v1/translate", json={"text": "Ja."})
    metrics = server.get("/metrics").text
    assert 'regard_requests_total{route="/v1/translate",status="200"}' in metrics
    assert 'regard_request_seconds_bucket{le="+Inf"}' in metrics


DEEP = "[" * 100_000 + "]" * 100_000
REFUSED = {
    "an unknown model": ({"json": {"text": "a", "model": "xx"}}, 404, "available: de-en, en-de, zh-en"),
    "a beam that is too wide": ({"json": {"text": "a", "beam": 10_000}}, 422, "beam"),
    "an unknown option": ({"json": {"text": "a", "baem": 4}}, 422, "baem"),
    "ten thousand options": ({"json": {"text": "a", **{f"o{n}": n for n in range(10_000)}}}, 422, "o0"),
    "no text": ({"json": {}}, 422, "text"),
    "a number for a text": ({"json": {"text": 5}}, 422, "text"),
    "an unpaired surrogate": ({"content": b'{"text": "\\ud800"}'}, 422, "unicode"),
    "deep JSON": ({"content": DEEP.encode()}, 4, ""),
    "invalid JSON": ({"content": b"\xff\xfe{"}, 4, ""),
    "a text that is too long": ({"json": {"text": "a " * 60_000}}, 422, "100000"),
    "a body that is too large": ({"content": b'{"text": "' + b"a" * 3_000_000 + b'"}'}, 413, "larger"),
    "too many texts": ({"json": {"text": ["a"] * 5000}}, 422, "1000"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_one_sentence_without_a_traceback(server, name):
    options, status, words = REFUSED[name]
    answer = server.post("/v1/translate", headers={"content-type": "application/json"}, **options)
    assert answer.status_code == status or answer.status_code // 100 == status, answer.text
    assert words in answer.json()["error"] and "Traceback" not in answer.text
    assert len(answer.text) < 500


JSON = {"content-type": "application/json"}
NOT_OBJECT = 'the request body must be a JSON object, such as {"text": "Where is the station?"}'


@pytest.mark.parametrize(
    ("request_of", "sentence"),
    [
        (
            {"content": b'{"text": "Ja."}'},
            "the request body must be a JSON object; send it with the header content-type: application/json",
        ),
        ({}, "the request body must be a JSON object; send it with the header content-type: application/json"),
        ({"json": {"text": "Ja.", "beem": 3}}, "a request has no field 'beem'; did you mean 'beam'?"),
        ({"json": {"beam": 3}}, "text is missing"),
        ({"json": ["Ja."]}, NOT_OBJECT),
        ({"content": b'{"text": "Ja.",}', "headers": JSON}, "the request body is not valid JSON: "),
        ({"url": "/v1/nope"}, "there is no /v1/nope; /docs lists what there is"),
        ({"url": "/health"}, "/health does not take POST; use GET"),
    ],
    ids=["no content type", "no body", "misspelt", "no text", "a list", "not JSON", "unknown path", "wrong method"],
)
def test_a_refusal_names_what_to_send(request_of, sentence):
    service = SimpleNamespace(limits=Limits(), access=Access(keys=(), hosts=()), metrics=Metrics())

    async def ask():
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post(**{"url": "/v1/translate", **request_of})

    answer = asyncio.run(ask())
    assert answer.status_code in (404, 405, 422) and answer.json()["error"].startswith(sentence), answer.text


@pytest.mark.slow(unless=["control", "format", "spaces"])
@pytest.mark.parametrize(
    "text",
    ["\x00\x01\x02", "a\u202eb\u200d\ufeff", "\U0001f600" * 50, "a" * 2000, "\r\n\t", "\u0301" * 300],
    ids=["control", "format", "emoji", "one long word", "spaces", "accents"],
)
def test_unusual_texts_are_accepted(server, text):
    assert server.post("/v1/translate", json={"text": text}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/assets/../app.py", "/assets/%2e%2e%2fapp.py", "/assets//etc/passwd", "/../../etc/passwd"]
)
def test_only_the_files_of_the_page_are_served(server, path):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = connection.makefile("rb").read()
    assert b" 404 " in answer.splitlines()[0] and b"root:" not in answer


def test_pages_load_nothing_from_other_sites(server):
    answer = server.get("/")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    for name in ("page.js", "page.css", "elements.js", "attention.js", "look.css", "docs.js"):
        assert server.get(f"/assets/{name}").status_code == 200
    assert "http://" not in answer.text and "https://" not in answer.text


def test_clients_that_disconnect_leave_nothing_in_the_queue(server):
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
def test_an_unpaired_surrogate_is_refused_by_the_libretranslate_api(server, field):
    asked = {"q": "Ja.", "source": "de", "target": "en"} | {field: "X"}
    body = json.dumps(asked).replace('"X"', '"\\ud800"')
    answer = server.post("/translate", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400 and answer.json()["error"]


def test_a_text_with_too_many_sentences_is_refused(server):
    answer = server.post("/v1/translate", json={"text": "a\n" * 40_000})
    assert answer.status_code == 413 and "4,096 sentences" in answer.json()["error"]


@pytest.mark.slow
def test_a_port_in_use_ends_the_command_with_one_sentence(server):
    command = [sys.executable, "-m", "regard", "serve", "de-en", "--port", str(server.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "in use" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_very_long_word_is_streamed_within_limits(server):
    with server_stream(server, {"text": "x" * 1500, "max_extra": 5}) as events:
        assert list(events)[-1]["done"] is True

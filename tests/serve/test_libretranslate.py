"""The LibreTranslate API with its own client, and with plain forms and JSON."""

import pytest


@pytest.fixture(scope="module")
def client(server):
    libretranslatepy = pytest.importorskip("libretranslatepy", reason="libretranslatepy is not installed")
    return libretranslatepy.LibreTranslateAPI(server.url + "/")


def test_the_client_translates(client):
    assert client.translate("Guten Morgen!", "de", "en") == "Good morning."


def test_the_client_lists_languages(client):
    found = {one["code"]: one for one in client.languages()}
    assert found["de"]["targets"] == ["en"] and found["en"]["name"] == "English"


@pytest.mark.parametrize(("text", "language"), [("Wo ist der Bahnhof?", "de"), ("Where is the station?", "en")])
def test_the_client_detects_languages(client, text, language):
    found = client.detect(text)
    assert found[0]["language"] == language
    assert found[0]["confidence"] > 50
    assert sum(one["confidence"] for one in found) < 100.3


def test_several_texts_and_alternatives_as_json(server):
    asked = {"q": ["Ja.", "Guten Morgen!"], "source": "de", "target": "en", "alternatives": 2}
    answer = server.post("/translate", json=asked).json()
    assert answer["translatedText"][1] == "Good morning."
    assert [len(one) for one in answer["alternatives"]] == [2, 2]


def test_the_source_language_can_be_detected(server):
    answer = server.post("/translate", data={"q": "Where is the station?", "source": "auto", "target": "de"}).json()
    assert answer["detectedLanguage"]["language"] == "en"
    assert "Bahnhof" in answer["translatedText"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"q": "a", "source": "de", "target": "xx"}, "there is no model for de-xx"),
        ({"source": "de", "target": "en"}, "q must be"),
        ({"q": "a", "target": "en"}, "source is missing"),
        ({"q": "a", "source": "de", "target": "en", "alternatives": "many"}, "integer"),
        ({"q": "a", "source": "de", "target": "en", "alternatives": "99"}, "from 0 to"),
        ({"q": "<b>a</b>", "source": "de", "target": "en", "format": "html"}, "format 'html' is not supported"),
    ],
)
def test_an_invalid_request_gets_an_explanation(server, asked, words):
    answer = server.post("/translate", data=asked)
    assert answer.status_code == 400 and words in answer.json()["error"]

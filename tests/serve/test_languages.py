"""A run of several languages is served as all its pairs, and other pairs through a pivot when asked."""

import pytest
from starlette.exceptions import HTTPException

import regard
from regard.errors import ConfigError
from regard.serve.models import ServedModel, load_all, refuse_unknown_pivot
from regard.serve.service import Service
from tests.serve.conftest import serving

PAIRS = [("en", "de"), ("en", "fr"), ("de", "en"), ("fr", "en")]


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A run of four pairs of languages that has learnt nothing; its outputs are random, and depend on the tag."""
    entries = [f"{{generate='copy/valid', languages=['{source}', '{target}']}}" for source, target in PAIRS]
    overrides = [
        *(f"data.train=[{', '.join(entries)}]", f"data.valid={entries[0]}", "data.test={}", "train.steps=1"),
        *("model.width=16", "model.num_layers=1", "model.hidden=16", "train.threads=1", "train.validate_pairs=1"),
        *("decode.max_extra=0", "train.lr=0", "train.warmup_steps=0"),
    ]
    out = tmp_path_factory.mktemp("runs") / "many"
    return regard.train("copy", out=out, overrides=overrides, listen=lambda event: None).run.path


@pytest.fixture(scope="module")
def server(many):
    with serving(str(many), "--pivot", "en") as found:
        yield found


@pytest.mark.slow
def test_languages_lists_all_pairs_and_those_through_the_pivot(server):
    found = {one["code"]: one["targets"] for one in server.get("/languages").json()}
    assert found == {"en": ["de", "fr"], "de": ["en", "fr"], "fr": ["en", "de"]}


@pytest.mark.slow
def test_models_lists_the_pairs(server):
    found = server.get("/v1/models").json()
    assert [(one["name"], one["source"], one["target"]) for one in found] == [
        (f"many:{source}-{target}", source, target) for source, target in PAIRS
    ]


def test_the_outputs_depend_on_the_language(many):
    translator = regard.load(many, device="cpu")
    assert len({translator.translate(["c a d b e f a b"], to=target)[0] for target in ("de", "fr")}) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_target_decides_the_tag(server, many, source, target):
    text = "c a d b e f a b"
    expected = regard.load(many, device="cpu").translate([text], to=target)[0]
    answer = server.post("/translate", json={"q": text, "source": source, "target": target}).json()
    assert answer["translatedText"] == expected
    named = server.post("/v1/translate", json={"text": text, "model": f"many:{source}-{target}"}).json()
    chosen = server.post("/v1/translate", json={"text": text, "model": "many", "target": target}).json()
    assert named["translations"][0]["text"] == chosen["translations"][0]["text"] == expected
    looked = server.post("/v1/look", json={"text": text, "target": target}).json()
    assert looked["source"]["tokens"][0] == f"<2{target}>" and looked["target"]["text"] == expected


@pytest.mark.slow
def test_other_pairs_are_translated_through_the_pivot(server, many):
    text = "c a d b e f a b"
    expected = regard.load(many, device="cpu").translate([text], to="fr", pivot="en")[0]
    answer = server.post("/translate", json={"q": [text, ""], "source": "de", "target": "fr"}).json()
    assert answer["translatedText"] == [expected, ""]


@pytest.mark.slow
def test_a_source_that_is_to_be_detected_is_one_that_the_target_can_be_reached_from(server):
    answer = server.post("/translate", json={"q": "a b", "source": "auto", "target": "de"}).json()
    assert answer["detectedLanguage"]["language"] in ("en", "fr")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "asked", "status", "words"),
    [
        (
            "/translate",
            {"q": "a", "source": "de", "target": "x"},
            400,
            "de-x; available: en-de, en-fr, de-en, fr-en, de-fr",
        ),
        ("/v1/translate", {"text": "a", "model": "many"}, 422, "many translates into de, fr, en; choose one of them"),
        ("/v1/translate", {"text": "a", "target": "x"}, 404, "there is no model into 'x'; available: de, fr, en"),
        ("/v1/translate", {"text": "a", "model": "m"}, 404, "there is no model 'm'; available: many:en-de, many:en-fr"),
    ],
)
def test_errors_name_the_languages_that_there_are(server, path, asked, status, words):
    answer = server.post(path, json=asked)
    assert answer.status_code == status and words in answer.json()["error"]


@pytest.mark.slow
def test_a_model_of_one_target_language_is_served_for_all_its_sources(tmp_path):
    entries = [f"{{generate='copy/valid', languages=['{source}', 'en']}}" for source in ("de", "fr")]
    overrides = [
        *(f"data.train=[{', '.join(entries)}]", "data.test={}", "train.steps=1", "train.lr=0", "train.warmup_steps=0"),
        *("model.width=16", "model.num_layers=1", "model.hidden=16", "train.threads=1", "train.validate_pairs=1"),
    ]
    regard.train("copy", out=tmp_path / "english", overrides=overrides, listen=lambda event: None)
    models = load_all([tmp_path / "english"], int8=False)
    assert [one.languages for one in models.values()] == [("de", "en"), ("fr", "en")]
    assert [one.translator.tag_ids() for one in models.values()] == [[], []]


@pytest.mark.slow
def test_without_a_pivot_only_the_pairs_of_the_model_are_there(many):
    models = load_all([many], int8=False)
    service = Service(models, None, None, None)
    assert service.language_pairs() == PAIRS
    assert [served.name for served in service.find_route("en", "fr")] == ["many:en-fr"]
    refuse_unknown_pivot(models, "en")
    with pytest.raises(
        ConfigError, match=r"--pivot is 'xx', but a pivot must be translated into and out of; .*: de, en, fr"
    ):
        refuse_unknown_pivot(models, "xx")


def test_without_languages_an_error_says_how_to_name_a_model():
    service = Service({"dates": ServedModel("dates", None, None, None, None)}, None, None, None)
    for find in (lambda: service.find_route("en", "de"), lambda: service.find_model(None, "de")):
        with pytest.raises(HTTPException) as caught:
            find()
        assert "available: none, because no recipe names them in data.train.languages" in caught.value.detail

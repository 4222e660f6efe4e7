"""A translator with the engine finds what a translator with PyTorch finds, whatever the options."""

import ctypes
import shutil
from importlib import resources

import numpy as np
import pytest
import torch

import regard
from regard.config import SearchOptions
from regard.decoding.requests import Request
from regard.decoding.shortlist import Shortlist
from regard.engine import bindings
from regard.engine.bindings import library
from regard.errors import Cancelled, ConfigError, DecodeError
from regard.explain.translation_trace import trace_translation

pytestmark = pytest.mark.skipif(library() is None, reason="the engine has not been compiled")

LINES = (resources.files("regard.exchange") / "held_out_de_en.tsv").read_text(encoding="utf-8").splitlines()
PAIRS = [line.split("\t") for line in LINES]
TEXTS = [*(source for source, _ in PAIRS[:8]), "Siehe <b>hier</b>: https://example.org/a?b=1 (12,5 %)", ""]
OPTIONS = {
    "greedy": {"beam": 1},
    "beam": {"beam": 4, "nbest": 3},
    "by power": {"beam": 3, "length_penalty": 1.0, "length_penalty_kind": "power", "early_stopping": False},
    "never": {"beam": 3, "early_stopping": "never", "nbest": 2},
    "token scores": {"beam": 2, "token_scores": True},
    "samples": {"beam": 3, "sample": True, "nbest": 3},
    "nucleus": {"beam": 2, "sample": True, "top_p": 0.8, "temperature": 0.7},
    "top k": {"beam": 2, "sample": True, "top_k": 5, "epsilon": 0.02},
    "lengths": {"beam": 2, "min_length": 6, "max_length": 9},
    "diverse": {"beam": 4, "beam_groups": 2, "nbest": 2},
    "no repeated bigram": {"beam": 3, "no_repeat_ngram": 2},
    "coverage": {"beam": 4, "coverage_penalty": 0.2, "nbest": 2},
    "mbr": {"beam": 4, "sample": True, "mbr": "chrf"},
    "confidence": {"beam": 2, "confidence": True},
    "unprotected": {"beam": 2, "protect": False},
}


@pytest.fixture(scope="module")
def both():
    return [regard.load("de-en", device="cpu", engine=engine, threads=2) for engine in ("engine", "torch")]


def same(found, expected):
    """Assert that two lists of translations are equal, and their scores nearly."""
    assert [one.text for one in found] == [one.text for one in expected]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=2e-3)
    for one, other in zip(found, expected, strict=True):
        assert one.lost == other.lost and (one.tokens is None) == (other.tokens is None)
        if one.tokens is not None:
            assert [token.text for token in one.tokens] == [token.text for token in other.tokens]
            assert [token.score for token in one.tokens] == pytest.approx(
                [token.score for token in other.tokens], abs=2e-3
            )
        if one.confidence is not None:
            assert one.confidence.sentence == pytest.approx(other.confidence.sentence, abs=2e-3)


@pytest.mark.slow(unless=["greedy", "beam", "samples", "never"])
@pytest.mark.parametrize("name", OPTIONS)
def test_the_engine_finds_what_pytorch_finds(both, name):
    options = SearchOptions(**OPTIONS[name])
    for found, expected in zip(*(one.stream(TEXTS, options=options) for one in both), strict=True):
        same(found, expected)


def test_prefixes_phrases_and_parts_to_keep_are_in_the_output_of_both(both):
    requests = [
        Request("Wo ist der Bahnhof?", prefix="Where"),
        Request("Wo ist der Bahnhof?", phrases=["railway", ["station", "stop"]]),
        Request("Ich sah Frau Zzyx in Ulm.", keep=["Zzyx"]),
        Request("Das Haus ist alt."),
    ]
    options = SearchOptions(beam=4)
    found, expected = (list(one.stream(requests, options=options)) for one in both)
    for one, other in zip(found, expected, strict=True):
        same(one, other)
    assert "railway" in found[1][0].text and "Zzyx" in found[2][0].text


@pytest.mark.slow
def test_a_shortlist_restricts_both_in_the_same_way(both):
    size = both[0].tokenizers.target.size
    shortlist = Shortlist(size, list(range(3, 600)), {}, shared=True)
    for one in both:
        one.use_shortlist(lambda: shortlist)
    for more in ({}, {"no_repeat_ngram": 3}):  # in a session, and by the host
        options = SearchOptions(beam=3, shortlist=5, **more)
        found, expected = (list(one.stream(TEXTS, options=options)) for one in both)
        for some, others in zip(found, expected, strict=True):
            same(some, others)


def test_given_translations_have_the_same_scores(both):
    targets = [target for _, target in PAIRS[:5]]
    for options in (None, SearchOptions(confidence=True)):
        found, expected = (one.score(TEXTS[:5], targets, options=options) for one in both)
        same(found, expected)


def test_a_stream_gives_the_same_tokens(both):
    seen = [[], []]
    ids, _ = both[0].encode("Das Haus ist alt und schön.")
    outputs = [
        one.backend.stream(
            [*ids, 2],
            options=one.options.greedy(),
            on_token=lambda ids, one=one: seen[both.index(one)].append(list(ids)),
        )
        for one in both
    ]
    assert outputs[0] == outputs[1] and seen[0] == seen[1] and seen[0][-1] == outputs[0]


def test_a_look_shows_the_same(both):
    text = "Das alte Haus steht am Bahnhof."
    found, expected = (trace_translation(one, text, options=SearchOptions(beam=4), alternatives=3) for one in both)
    assert found.axes == expected.axes and found.names == expected.names
    assert found.probabilities == pytest.approx(expected.probabilities, abs=1e-3)
    for some, others in zip(found.alternatives, expected.alternatives, strict=True):
        assert [(one.id, one.token, one.text) for one in some] == [(one.id, one.token, one.text) for one in others]
        assert [one.probability for one in some] == pytest.approx([one.probability for one in others], abs=1e-3)
    assert len(found.attentions) == len(expected.attentions)
    for one, other in zip(found.attentions, expected.attentions, strict=True):
        assert (one.name, one.layer, one.queries, one.keys) == (other.name, other.layer, other.queries, other.keys)
        assert one.self_attention == other.self_attention
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-3)


def test_a_search_stops_when_its_check_says_so(both):
    calls = []

    def check():
        calls.append(1)
        if len(calls) > 1:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        list(both[0].each(TEXTS, check=check))
    assert both[0].translate(["Das Haus ist alt."]) == ["The house is old."]


def test_an_abandoned_search_changes_nothing(both):
    next(iter(both[0].each(TEXTS)))
    assert both[0].translate(["Das Haus ist alt."]) == ["The house is old."]


def test_the_module_of_pytorch_is_there_for_those_who_ask_for_it(both):
    assert both[0].model is both[0].into(None).model and isinstance(both[0].model, regard.Transformer)
    assert both[0].backend.num_parameters() == both[1].backend.num_parameters()


@pytest.mark.slow
def test_a_rescorer_and_a_reverse_model_score_with_the_engine_too(both):
    found, expected = (
        regard.load("de-en", device="cpu", reverse="en-de", engine=engine).translate(
            TEXTS[:4], options=SearchOptions(beam=4)
        )
        for engine in ("engine", "torch")
    )
    assert found == expected


def test_what_the_engine_cannot_compute_is_refused_or_left_to_pytorch(both):
    with pytest.raises(ConfigError, match="the engine cannot compute de-en: it does not search with an ensemble"):
        regard.load("de-en", ensemble=["de-en"], engine="engine")
    with pytest.raises(ConfigError, match="it computes on a CPU, and device is cuda"):
        regard.load("de-en", device="cuda", engine="engine")
    with pytest.raises(ConfigError, match="engine is 'C'; it must be auto, engine or torch"):
        regard.load("de-en", engine="C")
    ensemble = regard.load("de-en", device="cpu", ensemble=["de-en"])
    assert ensemble.translate(["Das Haus ist alt."]) == ["The house is old."]


def test_options_that_allow_no_output_are_refused(both):
    both[0].use_shortlist(lambda: Shortlist(both[0].tokenizers.target.size, [], {}, shared=False))
    with pytest.raises(DecodeError, match="the options allow no output"):
        both[0].translate(["Haus"], options=SearchOptions(beam=1, shortlist=1, min_length=3))


def test_the_module_of_a_run_that_trains_on_has_the_weights_that_the_engine_read(tmp_path):
    small = ["model.width=16", "model.hidden=16", "train.validate_pairs=2", "train.checkpoint_every=1", "train.keep=9"]
    out = tmp_path / "copy"
    regard.train("copy", out=out, overrides=[*small, "train.steps=3"], listen=lambda event: None)
    shutil.rmtree(out / "final")
    shutil.rmtree(out / "checkpoints" / "step-00000003")
    translator = regard.load(out, device="cpu", engine="engine")
    shutil.copytree(out / "checkpoints" / "step-00000001", out / "checkpoints" / "step-00000009")
    expected = regard.load_model(out / "checkpoints" / "step-00000002", device="cpu")
    assert torch.equal(translator.model.target_embedding, expected.target_embedding)


def test_a_library_with_other_structs_is_not_used(monkeypatch):
    assert bindings.library.__wrapped__() is not None
    wider = type("Wider", (bindings.Config,), {"_fields_": [("more", ctypes.c_int32)]})
    monkeypatch.setattr(bindings, "Config", wider)
    assert bindings.library.__wrapped__() is None

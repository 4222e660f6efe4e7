"""A trace by the engine is that by PyTorch."""

import numpy as np
import pytest
import torch

import regard
from regard.config import SearchOptions
from regard.engine.backend import EngineBackend
from regard.explain.report import as_page
from regard.explain.translation_trace import trace_translation
from regard.text.symbols import BOS
from regard.text.tokenizer_pair import train_tokenizers
from tests.engine_models import engine_of, needs_engine

pytestmark = needs_engine
TEXTS = ["Wo ist der Bahnhof?", "Siehe <b>hier</b>: https://example.org/a"]
MODELS = {
    "plain": {},
    "window, source without EOS": {"window": 2, "source_eos": False, "norm_order": "pre"},
    "one-sided": {"num_layers": 1, "decoder_layers": 3, "positions": "rotary", "feed_forward": "swiglu"},
    "learned": {"positions": "learned", "max_positions": 9},
}


def assert_same(found, wanted):
    assert found.axes == wanted.axes
    np.testing.assert_allclose(found.probabilities, wanted.probabilities, atol=1e-4)
    for some, others in zip(found.alternatives, wanted.alternatives, strict=True):
        assert [(one.id, one.token, one.text) for one in some] == [(one.id, one.token, one.text) for one in others]
        np.testing.assert_allclose([one.probability for one in some], [one.probability for one in others], atol=1e-4)
    for one, other in zip(found.attentions, wanted.attentions, strict=True):
        assert (one.name, one.layer, one.queries, one.keys) == (other.name, other.layer, other.queries, other.keys)
        assert one.self_attention == other.self_attention and one.weights.dtype == np.float32
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-4)


@pytest.fixture(scope="module")
def shipped():
    return [regard.load("de-en", device="cpu", engine=engine, threads=1) for engine in ("engine", "torch")]


@pytest.mark.parametrize("text", TEXTS)
def test_of_a_pretrained_model(shipped, text):
    found, wanted = (trace_translation(translator, text) for translator in shipped)
    assert_same(found, wanted)
    assert found.target.text == shipped[0].translate([text])[0]
    prefix = [*found.target.ids[:2], found.alternatives[2][0].id]
    forced = [trace_translation(one, text, prefix=prefix, options=SearchOptions(beam=2)) for one in shipped]
    assert_same(*forced)
    assert forced[0].target.ids[:3] == prefix


def small_translators(options, **search):
    torch.manual_seed(6)
    tokenizers = train_tokenizers(
        [("a dog sees a cat", "ein hund sieht die katze")] * 3, kind="char", size=60, joint=True
    )
    size = tokenizers.source.size
    table = {"width": 16, "num_layers": 2, "num_heads": 2, "hidden": 24, "dropout": 0.0, **options}
    model = regard.Transformer(source_size=size, target_size=size, **table).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    engine = EngineBackend(engine_of(model), num_parameters=0, threads=1)
    given = SearchOptions(**{"beam": 2, "max_extra": 2, **search})
    return [regard.Translator(one, tokenizers, given) for one in (engine, model)]


@pytest.mark.parametrize("name", MODELS)
def test_of_models_with_other_options(name):
    translators = small_translators(MODELS[name])
    found, wanted = (trace_translation(one, "a dog s") for one in translators)
    assert_same(found, wanted)
    prefix = [wanted.alternatives[0][0].id]
    assert_same(*(trace_translation(one, "a dog s", prefix=prefix) for one in translators))


def test_of_an_output_that_leaves_no_room_for_eos():
    translators = small_translators(MODELS["learned"], min_length=99)
    found, wanted = (trace_translation(one, "a dog s") for one in translators)
    assert_same(found, wanted)
    assert (
        len(found.target.tokens) == len(found.axes["read"].tokens) == 9
        and found.target.ids[-1] != translators[0].backend.eos
    )
    assert [index for word in found.axes["read"].words for index in word] == list(range(9))
    assert "a dog s" in as_page(found)


def test_alternatives_have_nothing_that_search_never_outputs():
    translators = small_translators({})
    model, tokenizers = translators[1].model, translators[1].tokenizers
    with torch.no_grad():
        model.target_embedding[BOS] += 3 * model.target_embedding[BOS]
    engine = EngineBackend(engine_of(model), num_parameters=0, threads=1)
    for one in (regard.Translator(engine, tokenizers, translators[0].options), translators[1]):
        trace = trace_translation(one, "a dog", alternatives=5)
        assert all(len(some) == 5 and BOS not in [other.id for other in some] for some in trace.alternatives)


def test_8_bit_integers_have_numbers_of_their_own(shipped):
    eight = regard.load("de-en", device="cpu", engine="engine", int8=True, threads=1)
    found, wanted = (trace_translation(one, TEXTS[0], alternatives=0) for one in (eight, shipped[0]))
    assert found.target == wanted.target
    assert found.probabilities != wanted.probabilities
    np.testing.assert_allclose(found.probabilities, wanted.probabilities, atol=0.1)

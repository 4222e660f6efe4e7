"""The engine as the backend of a translator: the same outputs as PyTorch with every option of search."""

import threading

import numpy as np
import pytest
import torch

from regard.config import SearchOptions
from regard.decoding.automaton import Automaton, Phrase
from regard.decoding.constraints import Demands
from regard.decoding.torch_backend import TorchBackend
from regard.engine.backend import EngineBackend
from regard.errors import Cancelled, DecodeError
from regard.models import build_model
from regard.text.tokenizer import EOS
from tests.engine_models import engine_of, needs_engine

pytestmark = needs_engine
SIZE = 40
SOURCES = [[3, 4, 5, 6, 7, EOS], [8, EOS], [5, 5, 9, 10, 30, 4, 8, 7, 6, EOS], [10, 29, EOS]]
OPTIONS = {
    "greedy": {"beam": 1},
    "unscored": {"beam": 1, "scores": False},
    "beam": {"beam": 4, "nbest": 4, "token_scores": True},
    "sample": {"beam": 3, "nbest": 3, "sample": True, "seed": 5, "token_scores": True},
    "top_k": {"beam": 3, "nbest": 3, "sample": True, "top_k": 4, "temperature": 1.5},
    "top_p": {"beam": 3, "nbest": 3, "sample": True, "top_p": 0.6},
    "epsilon": {"beam": 2, "nbest": 2, "sample": True, "epsilon": 0.05, "temperature": 0.7},
    "cold": {"beam": 2, "nbest": 2, "sample": True, "temperature": 0.0},
    "groups": {"beam": 4, "nbest": 2, "beam_groups": 2},
    "repetition": {"beam": 3, "no_repeat_ngram": 2, "max_repeats": 2},
}


@pytest.fixture(scope="module")
def backends():
    torch.manual_seed(3)
    table = {"kind": "transformer", "width": 24, "num_layers": 2, "num_heads": 2, "hidden": 40, "dropout": 0.0}
    model = build_model(table, source_size=SIZE, target_size=SIZE).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return TorchBackend(model), EngineBackend(engine_of(model), num_parameters=model.num_parameters(), threads=2)


def found_by(backend, options, demands=None):
    results = backend.search(SOURCES, options=options, demands=demands)
    found = {number: best for some in results for number, best in some}
    return [found[number] for number in range(len(SOURCES))]


def assert_same(wanted, found):
    for one, other in zip(wanted, found, strict=True):
        assert [h.ids for h in one] == [h.ids for h in other]
        np.testing.assert_allclose([h.score for h in other], [h.score for h in one], rtol=1e-4, atol=1e-5)
        for first, second in zip(one, other, strict=True):
            if first.token_scores is not None:
                np.testing.assert_allclose(second.token_scores, first.token_scores, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_search(backends, name):
    options = SearchOptions(max_extra=6, **OPTIONS[name])
    assert_same(*(found_by(backend, options) for backend in backends))


@pytest.mark.parametrize("name", ["greedy", "beam", "sample"])
@pytest.mark.parametrize("demands", ["prefix", "shortlist", "never", "phrase"])
def test_demands_on_outputs(backends, name, demands):
    options = SearchOptions(max_extra=6, **OPTIONS[name])
    given = {
        "prefix": Demands.prefixes([[9, 9], [], [11], [5, 6, 7]], eos=EOS),
        "shortlist": Demands([None] * 4, vocabularies=[np.unique([EOS, *range(at, SIZE, 3)]) for at in (3, 4, 5, 6)]),
        "never": Demands([None] * 4, never=tuple(range(20, 30))),
        "phrase": Demands([Automaton(EOS, phrases=(Phrase(((33, 34),)),)), None, None, None]),
    }[demands]
    assert_same(*(found_by(backend, options, given) for backend in backends))


def test_a_shortlist_of_untied_embeddings_with_biases():
    torch.manual_seed(4)
    table = {
        "kind": "transformer",
        "width": 24,
        "num_layers": 1,
        "num_heads": 2,
        "hidden": 40,
        "tie": "none",
        "output_bias": True,
    }
    model = build_model(table, source_size=SIZE, target_size=SIZE).eval()
    with torch.no_grad():
        model.output_bias += torch.randn(SIZE)
    demands = Demands([None] * 4, vocabularies=[np.unique([EOS, *range(at, SIZE, 2)]) for at in (3, 4, 5, 6)])
    engine = EngineBackend(engine_of(model), num_parameters=0, threads=1)
    options = SearchOptions(beam=3, nbest=3, max_extra=5)
    assert_same(found_by(TorchBackend(model), options, demands), found_by(engine, options, demands))


def test_int8_outputs_have_nearly_the_same_scores(backends):
    torch_backend = backends[0]
    eight = EngineBackend(engine_of(torch_backend.model, int8=True), num_parameters=0, threads=1)
    scores = [torch_backend.forced_scores(SOURCES[:1], [[7, 9, 11, EOS]], tokens=100)[0].scores]
    scores.append(eight.forced_scores(SOURCES[:1], [[7, 9, 11, EOS]], tokens=100)[0].scores)
    np.testing.assert_allclose(scores[1], scores[0], atol=0.06)
    assert scores[0] != scores[1]


def test_searches_of_several_threads_share_a_session(backends):
    _, engine = backends
    options = SearchOptions(beam=3, nbest=2)
    wanted = found_by(engine, options)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(found_by(engine, options))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [wanted] * 8


def test_a_search_that_is_stopped_leaves_nothing_behind(backends):
    _, engine = backends
    calls = 0

    def check():
        nonlocal calls
        calls += 1
        if calls > 2:
            raise Cancelled("stop")

    with pytest.raises(Cancelled):
        for _ in engine.search(SOURCES * 50, options=SearchOptions(beam=4), check=check):
            pass
    assert not any(session.users for session in engine._sessions.values())
    assert len(found_by(engine, SearchOptions(beam=1))) == len(SOURCES)


def test_ids_that_the_model_does_not_have_are_refused(backends):
    with pytest.raises(DecodeError, match="id 40"):
        list(backends[1].search([[3, SIZE, EOS]], options=SearchOptions()))

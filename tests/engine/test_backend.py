"""The engine as the backend of a translator: the same outputs as PyTorch with every option of search."""

import multiprocessing
import threading

import numpy as np
import pytest
import torch

from regard.config import SearchOptions
from regard.decoding.automaton import Automaton, Phrase
from regard.decoding.constraints import Demands
from regard.decoding.drawing import generator
from regard.decoding.torch_backend import TorchBackend
from regard.engine import backend as backend_module
from regard.engine.backend import EngineBackend
from regard.engine.model import EngineModel
from regard.engine.session import Session
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


def test_random_numbers_are_made_when_a_sentence_is_added(backends, monkeypatch):
    """Not for all sentences before the first one: there may be many."""
    events = []
    monkeypatch.setattr(backend_module, "generator", lambda *key: events.append("draw") or generator(*key))
    add = Session.add
    monkeypatch.setattr(Session, "add", lambda *given, **more: events.append("add") or add(*given, **more))
    found_by(backends[1], SearchOptions(beam=2, sample=True))
    assert events == ["draw", "draw", "add"] * len(SOURCES)


def test_a_child_of_fork_searches_with_a_session_of_its_own(backends):
    """Also one that is forked in the middle of a search."""
    _, engine = backends
    options = SearchOptions(beam=3, nbest=2, scores=True)
    wanted = found_by(engine, options)
    search = engine.search(SOURCES * 20, options=options)
    next(search)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def child():
        results.put([[(one.ids, one.score) for one in best] for best in found_by(engine, options)])
        search.close()

    process = context.Process(target=child, daemon=True)
    process.start()
    process.join(60)
    try:
        assert process.exitcode == 0
    finally:
        process.kill()
    assert results.get() == [[(one.ids, one.score) for one in best] for best in wanted]
    assert len(list(search)) == 20 * len(SOURCES) - 1
    assert found_by(engine, options) == wanted


def test_given_outputs_are_scored_one_per_thread(backends, monkeypatch):
    """A single output gets all threads; none of many starts threads of its own."""
    threads = []
    force = EngineModel.force
    monkeypatch.setattr(
        EngineModel, "force", lambda *given, **more: threads.append(more["threads"]) or force(*given, **more)
    )
    torch_backend, engine = backends
    outputs = [[7, 9, 11, EOS], [8, EOS], [5, 6, EOS], [EOS]]
    wanted = torch_backend.forced_scores(SOURCES, outputs, tokens=100)
    found = engine.forced_scores(SOURCES, outputs, tokens=100)
    assert threads == [1] * len(outputs)
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_allclose(other.scores, one.scores, rtol=1e-4, atol=1e-5)
    engine.forced_scores(SOURCES[:1], outputs[:1], tokens=100)
    assert threads[len(outputs) :] == [engine.threads] == [2]


def test_scoring_can_be_stopped(backends):
    calls = []

    def check():
        calls.append(1)
        if len(calls) > 2:
            raise Cancelled("stop")

    with pytest.raises(Cancelled):
        backends[1].forced_scores(SOURCES * 25, [[7, EOS]] * 100, tokens=100, check=check)
    assert len(calls) == 3


def test_coverage_asks_for_the_last_cross_attention_alone(backends, monkeypatch):
    torch_backend, engine = backends
    rows = [(source[:-1], [7, 9, 11]) for source in SOURCES]
    wanted = torch_backend.coverage_penalties(rows)
    monkeypatch.setattr(EngineModel, "force", None)
    np.testing.assert_allclose(engine.coverage_penalties(rows), wanted, rtol=1e-4)

"""Sessions of the engine, and outputs that are given to it: order, time limits, numbers of options, attention."""

import numpy as np
import pytest
import torch

from regard.config import SearchOptions
from regard.engine.bindings import engine
from regard.engine.model import ALL_ATTENTION, EngineModel
from regard.engine.session import Session
from regard.models import build_model
from regard.text.tokenizer import EOS
from tests.engine_models import engine_of, needs_engine, search_with_engine

pytestmark = needs_engine
SIZE = 40
SOURCES = [[3, 4, 5, 6, EOS], [8, EOS], [5, 5, 9, 10, EOS], [10, 29, EOS]]


@pytest.fixture(scope="module")
def model() -> EngineModel:
    torch.manual_seed(3)
    table = {"kind": "transformer", "width": 24, "num_layers": 2, "num_heads": 2, "hidden": 40, "dropout": 0.0}
    return engine_of(build_model(table, source_size=SIZE, target_size=SIZE).eval())


def test_results_come_in_the_order_in_which_sentences_ended(model):
    """All four end at their first step."""
    session = Session(model, threads=0)
    tickets = [session.add(source, SearchOptions(beam=2), 1) for source in SOURCES]
    assert [session.next()[0] for _ in tickets] == tickets
    session.close()


def test_a_cancelled_result_leaves_the_order_of_the_others(model):
    session = Session(model, threads=0)
    tickets = [session.add(source, SearchOptions(beam=2), 1) for source in SOURCES]
    assert session.next()[0] == tickets[0]
    session.cancel(tickets[3])  # the last one that has ended
    session.cancel(tickets[1])
    later = session.add(SOURCES[0], SearchOptions(beam=2), 1)
    assert session.next()[0] == tickets[2]
    assert session.next()[0] == later
    assert session.next(0) is None
    session.close()


def test_a_session_without_threads_stops_after_the_time_limit(model):
    """A search of so many steps takes much longer than a millisecond."""
    session = Session(model, threads=0)
    ticket = session.add(SOURCES[0], SearchOptions(beam=4, min_length=1000), 1000)
    calls = 1
    while (ready := session.next(1)) is None:
        calls += 1
    assert ready[0] == ticket and calls > 1
    session.close()


@pytest.mark.parametrize("kind", ["wu", "power"])
def test_the_length_penalty_has_the_digits_of_a_python_float(model, kind):
    options = SearchOptions(beam=4, nbest=4, token_scores=True, length_penalty=0.6, length_penalty_kind=kind)
    for best in search_with_engine(model, SOURCES, options):
        for one in best:
            length = len(one.token_scores)
            penalty = (length if kind == "power" else (5 + length) / 6) ** 0.6
            assert one.score == pytest.approx(sum(one.token_scores) / penalty, rel=1e-12, abs=0)


def test_attention_to_what_is_not_seen_is_zero_whatever_was_in_the_array(model):
    source, target = np.array(SOURCES[0], dtype=np.int32), np.array([7, 9, 11], dtype=np.int32)
    S, T, L, H = len(source), len(target) + 1, 2, 2
    weights = np.full(L * H * (S * S + T * T + T * S), 7, dtype=np.float32)
    failed = engine().regard_force(
        *(model.handle, source.ctypes.data, S, target.ctypes.data, T - 1, 1),
        *(None, 0, None, None, weights.ctypes.data, ALL_ATTENTION),
    )
    assert not failed
    own_LHTT = weights[L * H * S * S :][: L * H * T * T].reshape(L, H, T, T)
    assert (np.triu(own_LHTT, 1) == 0).all()
    np.testing.assert_allclose(own_LHTT.sum(axis=-1), 1, atol=1e-6)


def test_the_last_cross_attention_is_the_last_of_all(model):
    wanted = model.force(SOURCES[2], [7, 9, 11], attention=True).attention[2][-1]
    np.testing.assert_array_equal(model.last_cross_attention(SOURCES[2], [7, 9, 11]), wanted)

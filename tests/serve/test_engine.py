"""Requests are translated together, and everybody gets their own."""

import threading
import time
from dataclasses import replace

import pytest

from regard.decoding.hypotheses import SearchOptions
from regard.decoding.translator import Translation
from regard.serve.engine import Closed, Engine, QueueFull
from regard.serve.limits import Limits

M = "de-en"
OPTIONS, LIMITS = SearchOptions(beam=1), Limits(batch_sentences=8, batch_gap=0.05, batch_wait=0.2, queued_sentences=20)


class Slow:
    """A lane that shouts, and remembers its batches; it can be held."""

    def __init__(self):
        self.batches, self.go_on = [], threading.Event()
        self.go_on.set()

    def translate(self, model, texts, options):
        self.go_on.wait(10)
        self.batches.append(list(texts))
        if "bad" in texts:
            raise ValueError("bad")
        for number, text in enumerate(texts):
            yield [(number, [Translation(text.upper(), 0.0)])]


@pytest.fixture
def slow():
    return Slow()


@pytest.fixture
def engine(slow):
    found = Engine([slow.translate], LIMITS)
    yield found
    slow.go_on.set()
    found.close()


def results(futures):
    return [one[0].text for future in futures for one in future.result(10)]


def test_those_that_wait_go_together_and_get_their_own(engine, slow):
    slow.go_on.clear()
    first = engine.submit(M, ["zero"], OPTIONS)
    time.sleep(0.2)  # it is being translated now
    later = [engine.submit(M, [f"{name}1", f"{name}2"], OPTIONS) for name in "abc"]
    slow.go_on.set()
    assert results(first) == ["ZERO"]
    assert [results(one) for one in later] == [["A1", "A2"], ["B1", "B2"], ["C1", "C2"]]
    assert slow.batches == [["zero"], ["a1", "a2", "b1", "b2", "c1", "c2"]]


def test_other_options_are_another_batch(engine, slow):
    slow.go_on.clear()
    engine.submit(M, ["zero"], OPTIONS)
    time.sleep(0.2)
    futures = [engine.submit(M, [text], replace(OPTIONS, beam=beam)) for text, beam in (("a", 1), ("b", 2), ("c", 1))]
    slow.go_on.set()
    assert [results(one) for one in futures] == [["A"], ["B"], ["C"]]
    assert slow.batches == [["zero"], ["a", "c"], ["b"]]


def test_a_long_request_is_several_batches(engine, slow):
    texts = [f"t{number}" for number in range(19)]
    assert results(engine.submit(M, texts, OPTIONS)) == [text.upper() for text in texts]
    assert [len(batch) for batch in slow.batches] == [8, 8, 3]


def test_a_full_queue_refuses(engine, slow):
    slow.go_on.clear()
    engine.submit(M, ["zero"], OPTIONS)
    time.sleep(0.2)
    engine.submit(M, ["x"] * 18, OPTIONS)
    with pytest.raises(QueueFull):
        engine.submit(M, ["y"] * 3, OPTIONS)
    assert engine.queued == 18
    slow.go_on.set()


def test_an_error_reaches_who_asked_and_the_engine_goes_on(engine):
    with pytest.raises(ValueError, match="bad"):
        results(engine.submit(M, ["bad"], OPTIONS))
    assert results(engine.submit(M, ["good"], OPTIONS)) == ["GOOD"]


def test_what_nobody_waits_for_is_not_translated(engine, slow):
    slow.go_on.clear()
    engine.submit(M, ["zero"], OPTIONS)
    time.sleep(0.2)
    (gone,), kept = engine.submit(M, ["gone"], OPTIONS), engine.submit(M, ["kept"], OPTIONS)
    assert gone.cancel()
    slow.go_on.set()
    assert results(kept) == ["KEPT"]
    assert slow.batches == [["zero"], ["kept"]] and engine.queued == 0


def test_closing_finishes_what_was_taken_and_takes_nothing_more(slow):
    engine = Engine([slow.translate] * 2, LIMITS)
    slow.go_on.clear()
    futures = [engine.submit(M, [f"t{number}"], OPTIONS) for number in range(10)]
    closing = threading.Thread(target=engine.close)
    closing.start()
    time.sleep(0.1)
    with pytest.raises(Closed):
        engine.submit(M, ["late"], OPTIONS)
    slow.go_on.set()
    closing.join(10)
    assert [results(one) for one in futures] == [[f"T{number}"] for number in range(10)]


def test_calls_are_made_by_the_engines_threads(engine):
    assert engine.call(lambda: threading.current_thread().name).result(10).startswith("translate-")
    with pytest.raises(ZeroDivisionError):
        engine.call(lambda: 1 / 0).result(10)


def test_other_models_are_another_batch(engine, slow):
    slow.go_on.clear()
    engine.submit(M, ["zero"], OPTIONS)
    time.sleep(0.2)
    futures = [engine.submit(model, [text], OPTIONS) for text, model in (("a", M), ("b", "en-de"), ("c", M))]
    slow.go_on.set()
    assert [results(one) for one in futures] == [["A"], ["B"], ["C"]]
    assert slow.batches == [["zero"], ["a", "c"], ["b"]]


def test_what_waits_is_shared_among_lanes(slow):
    engine = Engine([slow.translate] * 2, replace(LIMITS, batch_sentences=64, queued_sentences=200))
    futures = [engine.submit(M, [f"t{number}"], OPTIONS) for number in range(64)]
    assert [results(one) for one in futures] == [[f"T{number}"] for number in range(64)]
    engine.close()
    assert len(slow.batches) > 1 and max(map(len, slow.batches)) <= 64

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


def test_a_sentence_is_answered_when_it_is_done_not_with_the_last_of_its_batch():
    go_on, batches = threading.Event(), []

    def lane(model, texts, options):
        batches.append(texts)
        yield [(1, [Translation(texts[1].upper(), 0.0)])]
        go_on.wait(10)
        yield [(0, [Translation(texts[0].upper(), 0.0)])]

    engine = Engine([lane], LIMITS)
    long, short = engine.submit(M, ["long"], OPTIONS), engine.submit(M, ["short"], OPTIONS)
    assert results(short) == ["SHORT"] and not long[0].done() and batches == [["long", "short"]]
    assert (engine.taken, engine.translated) == (1, 1)
    go_on.set()
    assert results(long) == ["LONG"]
    engine.close()
    assert (engine.queued, engine.taken, engine.translated, engine.batches) == (0, 0, 2, 1)


def test_an_error_after_some_answers_takes_none_of_them_back():
    def lane(model, texts, options):
        yield [(0, [Translation("ONE", 0.0)])]
        raise ValueError("in the middle")

    engine = Engine([lane], LIMITS)
    one, two = engine.submit(M, ["one"], OPTIONS), engine.submit(M, ["two"], OPTIONS)
    assert results(one) == ["ONE"]
    with pytest.raises(ValueError, match="in the middle"):
        results(two)
    engine.close()
    assert engine.taken == 0


def test_those_of_like_length_go_together(slow):
    engine = Engine([slow.translate] * 2, replace(LIMITS, batch_sentences=64, queued_sentences=200))
    slow.go_on.clear()
    held = []
    for _ in range(2):
        held += engine.submit(M, ["zero"], OPTIONS)
        time.sleep(0.3)  # a lane has it now
    texts = [text for number in range(10) for text in (f"s{number}", f"a long sentence {number}")]
    futures = [engine.submit(M, [text], OPTIONS) for text in texts]
    slow.go_on.set()
    assert [results(one) for one in futures] == [[text.upper()] for text in texts]
    assert results(held) == ["ZERO", "ZERO"]
    engine.close()
    batches = [batch for batch in slow.batches if "zero" not in batch]
    first = next(batch for batch in batches if "s0" in batch)
    assert 10 <= len(first) <= 11, batches  # half of 20 that wait and of one, or none, that the other lane has
    assert sum(len(text) == 2 for text in first) == 10, batches  # all of the first one's length, and only then another


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
    engine.close()
    assert engine.taken == 0


def test_what_is_cancelled_while_it_is_taken_is_no_longer_counted(engine, slow):
    slow.go_on.clear()
    first, second = engine.submit(M, ["first"], OPTIONS), engine.submit(M, ["second"], OPTIONS)
    taken, engine._take = engine._take, lambda: [second[0].cancel(), taken()][1]  # in the same batch, too late for it
    slow.go_on.set()
    assert results(first) == ["FIRST"]
    engine.close()
    assert engine.taken == 0


def test_a_lane_that_leaves_sentences_out_leaves_nobody_waiting():
    engine = Engine([lambda model, texts, options: iter([[(0, [Translation("ONE", 0.0)])]])], LIMITS)
    one, two = engine.submit(M, ["one"], OPTIONS), engine.submit(M, ["two"], OPTIONS)
    assert results(one) == ["ONE"]
    with pytest.raises(RuntimeError, match="left sentences out"):
        results(two)
    engine.close()
    assert (engine.taken, engine.batches) == (0, 0)


def test_the_first_does_not_wait_longer_than_it_may(slow):
    engine = Engine([slow.translate], replace(LIMITS, batch_gap=0.2, batch_wait=0.5))
    futures = []
    for number in range(12):  # one every 0.1 s: the gap is never long enough
        futures += engine.submit(M, [f"t{number}"], OPTIONS)
        time.sleep(0.1)
    results(futures)
    engine.close()
    assert len(slow.batches) > 1 and len(slow.batches[0]) < 8  # so it was time, and not a full batch


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
    engine.close()
    assert engine.taken == 0


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

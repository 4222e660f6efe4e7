"""Requests are translated together, everybody gets their own, and nobody waits for what somebody else asked for."""

import os
import signal
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import replace

import pytest

from regard.decoding.hypotheses import SearchOptions
from regard.serve import executor
from regard.serve.engine import MOST_PREEMPTIONS, PREEMPT_SECONDS, ClientFull, Closed, Engine, QueueFull
from regard.serve.executor import TaskFailed
from regard.serve.limits import Limits
from regard.serve.work import Sentence, Work
from regard.serve.worker_process import WorkerFailed
from tests.serve.fake_worker import Inside, real

M = "de-en"
OPTIONS = SearchOptions(beam=1)
LIMITS = Limits(batch_sentences=8, batch_gap=0.05, batch_wait=0.2, client_cost=20_000, total_cost=30_000)


def work(texts, *, client="somebody", cost=100, seconds=30, **changes):
    sentences = [Sentence(text, cost) for text in texts]
    given = {"model": M, "options": OPTIONS} | changes
    return Work(client, sentences=sentences, deadline=time.monotonic() + seconds, **given)


def started(*workers, limits=LIMITS, start=None):
    """An engine of workers inside of the test, or of real ones."""
    waiting = iter(workers)
    count = len(workers) or 2
    return Engine(
        start or (lambda: next(waiting)), workers=count, models={M: 0, "en-de": 1}, limits=limits, say=lambda text: None
    )


@pytest.fixture
def worker():
    return Inside()


@pytest.fixture
def engine(worker):
    found = started(worker)
    yield found
    worker.go_on.set()
    found.close()


@pytest.fixture
def processes():
    """An engine of two real processes."""
    found = started(start=real)
    until(lambda: found.ready_workers == 2)
    yield found
    found.close()


def submit(engine, *texts, **options):
    found = work(texts, **options)
    engine.submit(found)
    return found


def results(*works):
    return [best[0].text for one in works for best in one.future.result(20)]


def until(condition, seconds=20):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it never came to this"
        time.sleep(0.01)


def hold(engine, worker, *texts, **options):
    """Keep the worker busy with these."""
    worker.go_on.clear()
    before = len(worker.batches)
    found = submit(engine, *(texts or ["zero"]), **options)
    until(lambda: len(worker.batches) > before)
    return found


def test_those_that_wait_go_together_and_get_their_own(engine, worker):
    first = hold(engine, worker)
    later = [submit(engine, f"{name}1", f"{name}2") for name in "abc"]
    worker.go_on.set()
    assert results(first) == ["ZERO"]
    assert [results(one) for one in later] == [["A1", "A2"], ["B1", "B2"], ["C1", "C2"]]
    assert [sorted(batch) for batch in worker.batches] == [["zero"], ["a1", "a2", "b1", "b2", "c1", "c2"]]


def test_those_of_similar_cost_go_together(worker):
    engine = started(worker, limits=replace(LIMITS, batch_sentences=10))
    hold(engine, worker)
    short = [submit(engine, f"s{number}", cost=100) for number in range(10)]
    long = [submit(engine, f"l{number}", cost=900) for number in range(10)]
    worker.go_on.set()
    results(*short, *long)
    engine.close()
    assert [{text[0] for text in batch} for batch in worker.batches[1:]] == [{"s"}, {"l"}]


def test_other_options_and_other_models_are_another_batch(engine, worker):
    hold(engine, worker)
    works = [
        submit(engine, "a"),
        submit(engine, "b", options=SearchOptions(beam=2)),
        submit(engine, "c"),
        submit(engine, "d", model="en-de"),
    ]
    worker.go_on.set()
    assert results(*works) == ["A", "B", "C", "D"]
    assert worker.batches == [["zero"], ["a", "c"], ["b"], ["d"]]


def test_a_long_request_is_several_batches_of_bounded_cost(engine, worker):
    texts = [f"t{number}" for number in range(19)]
    assert results(submit(engine, *texts)) == [text.upper() for text in texts]
    assert [len(batch) for batch in worker.batches] == [8, 8, 3]
    dear = started(again := Inside(), limits=replace(LIMITS, long_batch_cost=8_000))
    results(submit(dear, "a", "b", "c", cost=4_000))
    dear.close()
    assert [len(batch) for batch in again.batches] == [2, 1]


def test_what_waits_is_shared_among_workers():
    workers = Inside(), Inside()
    engine = started(*workers, limits=replace(LIMITS, batch_sentences=64))
    works = [submit(engine, f"t{number}") for number in range(64)]
    assert results(*works) == [f"T{number}" for number in range(64)]
    engine.close()
    assert all(one.batches for one in workers)


def test_a_short_request_does_not_wait_for_a_long_one(engine, worker):
    hold(engine, worker, *[f"g{number}" for number in range(100)], client="greedy")
    short = submit(engine, "short", client="other")
    worker.go_on.set()
    assert results(short) == ["SHORT"]
    assert "short" in worker.batches[1]


def test_bulk_leaves_room_while_there_are_interactive_requests(worker):
    limits = replace(LIMITS, batch_sentences=64, interactive_cost=1000, bulk_batch_cost=500)
    engine = started(worker, limits=limits)
    hold(engine, worker, client="interactive")
    bulk = submit(engine, *[f"g{number}" for number in range(40)], client="bulk")
    worker.go_on.set()
    results(bulk)
    engine.close()
    assert max(map(len, worker.batches[1:])) == 5


def test_without_interactive_requests_bulk_has_all_room(worker):
    limits = replace(LIMITS, batch_sentences=64, interactive_cost=1000, bulk_batch_cost=500)
    engine = started(worker, limits=limits)
    results(submit(engine, *[f"g{number}" for number in range(40)], client="bulk"))
    engine.close()
    assert len(worker.batches) == 1


def test_long_sentences_leave_a_worker_to_short_ones():
    workers = Inside(), Inside()
    engine = started(*workers, limits=replace(LIMITS, short_cost=500, long_batch_cost=1000, interactive_cost=200))
    for one in workers:
        one.go_on.clear()
    submit(engine, "interactive", client="other")
    until(lambda: sum(len(one.batches) for one in workers) == 1)
    long = submit(engine, *[f"l{number}" for number in range(4)], cost=1000, client="greedy")
    time.sleep(1)  # the free worker has one of them, and the next waits although the other becomes free
    busy = next(one for one in workers if ["interactive"] in one.batches)
    busy.go_on.set()
    time.sleep(0.5)
    assert sum(len(one.batches) for one in workers) == 2
    assert results(submit(engine, "short", client="other")) == ["SHORT"]
    for one in workers:
        one.go_on.set()
    assert results(long) == ["L0", "L1", "L2", "L3"]
    engine.close()


def test_a_long_batch_is_stopped_for_short_ones_when_no_other_worker_is_there():
    worker = Inside()
    engine = started(worker, limits=replace(LIMITS, short_cost=500, interactive_cost=200))
    long = hold(engine, worker, "long", cost=1000)
    short = submit(engine, "short", client="other")
    until(lambda: worker.cancelled == [0])
    worker.go_on.set()
    assert results(short, long) == ["SHORT", "LONG"]
    engine.close()


def test_a_long_batch_is_stopped_only_so_often():
    worker = Inside()
    engine = started(worker, limits=replace(LIMITS, short_cost=500, interactive_cost=200))
    long = hold(engine, worker, "long", cost=1000)
    engine._running[0][0].preemptions = MOST_PREEMPTIONS
    submit(engine, "short", client="other")
    time.sleep(2 * PREEMPT_SECONDS + 0.3)
    assert worker.cancelled == []
    worker.go_on.set()
    assert results(long) == ["LONG"]
    engine.close()


def test_a_client_with_too_much_waiting_is_refused_and_others_are_not(engine, worker):
    hold(engine, worker)
    kept = submit(engine, *["x"] * 190, client="greedy")
    with pytest.raises(ClientFull):
        submit(engine, *["y"] * 20, client="greedy")
    other = submit(engine, "other", client="other")
    with pytest.raises(QueueFull):
        submit(engine, *["z"] * 150, client="third")
    worker.go_on.set()
    assert results(other) == ["OTHER"]
    results(kept)
    until(lambda: not engine.cost_of_client)


def test_what_nobody_waits_for_is_not_translated(engine, worker):
    hold(engine, worker)
    gone, kept = submit(engine, "gone"), submit(engine, "kept")
    assert gone.future.cancel()
    worker.go_on.set()
    assert results(kept) == ["KEPT"]
    assert worker.batches == [["zero"], ["kept"]] and engine.queued == 0


def test_a_batch_that_nobody_waits_for_any_more_is_cancelled(engine, worker):
    held = hold(engine, worker, "one", "two")
    held.future.cancel()
    until(lambda: worker.cancelled == [0])
    worker.go_on.set()
    assert results(submit(engine, "next")) == ["NEXT"]


def test_a_batch_that_somebody_still_waits_for_is_not(engine, worker):
    hold(engine, worker)
    gone, kept = submit(engine, "gone"), submit(engine, "kept")
    worker.go_on.set()
    until(lambda: len(worker.batches) == 2)
    gone.future.cancel()
    assert results(kept) == ["KEPT"] and worker.cancelled == []


def test_a_deadline_reaches_the_worker(engine, worker):
    held = hold(engine, worker, seconds=0.5)
    with pytest.raises(TimeoutError):
        held.future.result(10)
    assert worker.cancelled == [0]


def test_an_error_reaches_who_asked_and_the_engine_goes_on(processes):
    with pytest.raises(TaskFailed, match="ValueError: bad"):
        results(submit(processes, "error"))
    assert results(submit(processes, "good")) == ["GOOD"]


def test_a_sentence_whose_worker_is_killed_goes_to_another(processes):
    held = submit(processes, "one", "long")
    until(lambda: held.found)
    pid = int(held.found[0][0].score)
    os.kill(pid, signal.SIGKILL)
    until(lambda: processes.failures == 1)
    assert not held.done  # another worker has it now
    held.future.cancel()
    until(lambda: processes.ready_workers == 2)


def test_a_worker_that_is_stopped_is_replaced_and_its_sentences_answered(processes):
    pids = [one.worker.process.pid for one in processes.executors]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    asked = [submit(processes, f"t{number}") for number in range(10)]
    until(lambda: processes.why_not_ready() == "no worker is ready")
    assert results(*asked) == [f"T{number}" for number in range(10)]
    until(lambda: not set(pids) & {one.worker.process.pid for one in processes.executors})
    until(lambda: processes.why_not_ready() is None)


def test_an_idle_worker_that_is_stopped_is_replaced_too(processes):
    os.kill(processes.executors[0].worker.process.pid, signal.SIGSTOP)
    until(lambda: processes.failures == 1)
    until(lambda: processes.ready_workers == 2)


def test_a_sentence_that_ends_every_worker_is_refused_and_its_neighbours_are_answered(processes):
    asked = [submit(processes, text) for text in ("a", "b", "die", "c", "d")]
    with pytest.raises(WorkerFailed):
        asked[2].future.result(30)
    assert results(*asked[:2], *asked[3:]) == ["A", "B", "C", "D"]
    assert processes.failures == 3


def test_a_worker_that_does_not_stop_is_replaced(processes, monkeypatch):
    monkeypatch.setattr(executor, "CANCEL_SECONDS", 0.5)
    deaf = submit(processes, "deaf", seconds=0.5)
    until(lambda: processes.failures == 1)
    until(lambda: deaf.done or processes.queued == 0)
    deaf.future.cancel()
    assert results(submit(processes, "next")) == ["NEXT"]


def test_the_first_does_not_wait_longer_than_it_may(worker):
    engine = started(worker, limits=replace(LIMITS, batch_gap=0.2, batch_wait=0.5))
    works = []
    for number in range(12):  # one every 0.1 s: the gap is never long enough
        works.append(submit(engine, f"t{number}"))
        time.sleep(0.1)
    results(*works)
    engine.close()
    assert len(worker.batches) > 1 and len(worker.batches[0]) < 8  # so it was time, and not a full batch


def test_what_is_abandoned_is_refused_at_once_and_nothing_more_is_taken(engine, worker):
    held, waiting = hold(engine, worker), submit(engine, "waiting")
    engine.abandon()
    for one in (held, waiting):
        with pytest.raises(Closed):
            one.future.result(1)
    with pytest.raises(Closed):
        submit(engine, "late")
    assert engine.why_not_ready() == "the server is shutting down"


def test_closing_ends_workers_that_are_stopped_or_busy():
    engine = started(start=real)
    until(lambda: engine.ready_workers == 2)
    pids = [one.worker.process.pid for one in engine.executors]
    busy = submit(engine, "long")
    os.kill(pids[1], signal.SIGSTOP)
    closing = threading.Thread(target=engine.close)
    closing.start()
    closing.join(40)
    assert not closing.is_alive() and isinstance(busy.future.exception(1), Closed | CancelledError)
    assert all(one.worker.process.poll() is not None for one in engine.executors)

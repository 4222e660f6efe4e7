"""Jobs are translated in shared batches, each gets its own results, and short jobs do not wait for long ones."""

import os
import signal
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import replace

import pytest

from regard.config import SearchOptions
from regard.serve import executor
from regard.serve.access import Limits
from regard.serve.executor import TaskFailed
from regard.serve.fair_queue import Sentence, TranslationJob
from regard.serve.scheduler import (
    MAX_PREEMPTIONS,
    PREEMPT_SECONDS,
    ClientLimitExceeded,
    QueueFull,
    Scheduler,
    SchedulerClosed,
)
from regard.serve.worker_process import WorkerFailed
from tests.serve.fake_worker import InProcessWorker, start_process

M = "de-en"
OPTIONS = SearchOptions(beam=1)
LIMITS = Limits(batch_sentences=8, batch_gap=0.05, batch_wait=0.2, client_cost=20_000, total_cost=30_000)


def make_job(texts, *, client="client", cost=100, seconds=30, **changes):
    sentences = [Sentence(text, cost) for text in texts]
    given = {"model": M, "options": OPTIONS} | changes
    return TranslationJob(client, sentences=sentences, deadline=time.monotonic() + seconds, **given)


def start_scheduler(*workers, limits=LIMITS, start=None):
    """Return a scheduler with in-process workers, or with real processes."""
    waiting = iter(workers)
    count = len(workers) or 2
    return Scheduler(
        start or (lambda: next(waiting)), workers=count, models={M: 0, "en-de": 1}, limits=limits, say=lambda text: None
    )


@pytest.fixture
def worker():
    return InProcessWorker()


@pytest.fixture
def scheduler(worker):
    found = start_scheduler(worker)
    yield found
    worker.resume.set()
    found.close()


@pytest.fixture
def processes():
    """A scheduler with two real processes."""
    found = start_scheduler(start=start_process)
    until(lambda: found.ready_workers == 2)
    yield found
    found.close()


def submit(scheduler, *texts, **options):
    found = make_job(texts, **options)
    scheduler.submit(found)
    return found


def results(*jobs):
    return [best[0].text for one in jobs for best in one.future.result(20)]


def until(condition, seconds=20):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "the condition was never met"
        time.sleep(0.01)


def hold(scheduler, worker, *texts, **options):
    """Submit texts and block the worker while it translates them."""
    worker.resume.clear()
    before = len(worker.batches)
    found = submit(scheduler, *(texts or ["zero"]), **options)
    until(lambda: len(worker.batches) > before)
    return found


def test_queued_jobs_share_a_batch_and_get_their_own_results(scheduler, worker):
    first = hold(scheduler, worker)
    later = [submit(scheduler, f"{name}1", f"{name}2") for name in "abc"]
    worker.resume.set()
    assert results(first) == ["ZERO"]
    assert [results(one) for one in later] == [["A1", "A2"], ["B1", "B2"], ["C1", "C2"]]
    assert [sorted(batch) for batch in worker.batches] == [["zero"], ["a1", "a2", "b1", "b2", "c1", "c2"]]


def test_sentences_of_similar_cost_share_a_batch(worker):
    scheduler = start_scheduler(worker, limits=replace(LIMITS, batch_sentences=10))
    hold(scheduler, worker)
    short = [submit(scheduler, f"s{number}", cost=100) for number in range(10)]
    long = [submit(scheduler, f"l{number}", cost=900) for number in range(10)]
    worker.resume.set()
    results(*short, *long)
    scheduler.close()
    assert [{text[0] for text in batch} for batch in worker.batches[1:]] == [{"s"}, {"l"}]


def test_other_options_and_other_models_need_another_batch(scheduler, worker):
    hold(scheduler, worker)
    jobs = [
        submit(scheduler, "a"),
        submit(scheduler, "b", options=SearchOptions(beam=2)),
        submit(scheduler, "c"),
        submit(scheduler, "d", model="en-de"),
    ]
    worker.resume.set()
    assert results(*jobs) == ["A", "B", "C", "D"]
    assert worker.batches == [["zero"], ["a", "c"], ["b"], ["d"]]


def test_a_long_job_is_split_into_batches_of_bounded_cost(scheduler, worker):
    texts = [f"t{number}" for number in range(19)]
    assert results(submit(scheduler, *texts)) == [text.upper() for text in texts]
    assert [len(batch) for batch in worker.batches] == [8, 8, 3]
    expensive = start_scheduler(again := InProcessWorker(), limits=replace(LIMITS, long_batch_cost=8_000))
    results(submit(expensive, "a", "b", "c", cost=4_000))
    expensive.close()
    assert [len(batch) for batch in again.batches] == [2, 1]


def test_the_queue_is_shared_between_workers():
    workers = InProcessWorker(), InProcessWorker()
    scheduler = start_scheduler(*workers, limits=replace(LIMITS, batch_sentences=64))
    jobs = [submit(scheduler, f"t{number}") for number in range(64)]
    assert results(*jobs) == [f"T{number}" for number in range(64)]
    scheduler.close()
    assert all(one.batches for one in workers)


def test_a_short_job_does_not_wait_for_a_long_one(scheduler, worker):
    hold(scheduler, worker, *[f"g{number}" for number in range(100)], client="greedy")
    short = submit(scheduler, "short", client="other")
    worker.resume.set()
    assert results(short) == ["SHORT"]
    assert "short" in worker.batches[1]


def test_bulk_batches_are_smaller_after_an_interactive_job(worker):
    limits = replace(LIMITS, batch_sentences=64, interactive_cost=1000, bulk_batch_cost=500)
    scheduler = start_scheduler(worker, limits=limits)
    hold(scheduler, worker, client="interactive")
    bulk = submit(scheduler, *[f"g{number}" for number in range(40)], client="bulk")
    worker.resume.set()
    results(bulk)
    scheduler.close()
    assert max(map(len, worker.batches[1:])) == 5


def test_bulk_batches_are_full_without_interactive_jobs(worker):
    limits = replace(LIMITS, batch_sentences=64, interactive_cost=1000, bulk_batch_cost=500)
    scheduler = start_scheduler(worker, limits=limits)
    results(submit(scheduler, *[f"g{number}" for number in range(40)], client="bulk"))
    scheduler.close()
    assert len(worker.batches) == 1


@pytest.mark.slow
def test_long_sentences_leave_one_worker_free():
    workers = InProcessWorker(), InProcessWorker()
    scheduler = start_scheduler(
        *workers, limits=replace(LIMITS, short_cost=500, long_batch_cost=1000, interactive_cost=200)
    )
    for one in workers:
        one.resume.clear()
    submit(scheduler, "interactive", client="other")
    until(lambda: sum(len(one.batches) for one in workers) == 1)
    long = submit(scheduler, *[f"l{number}" for number in range(4)], cost=1000, client="greedy")
    time.sleep(1)  # the free worker has one; the next one waits even when the other worker becomes free
    busy = next(one for one in workers if ["interactive"] in one.batches)
    busy.resume.set()
    time.sleep(0.5)
    assert sum(len(one.batches) for one in workers) == 2
    assert results(submit(scheduler, "short", client="other")) == ["SHORT"]
    for one in workers:
        one.resume.set()
    assert results(long) == ["L0", "L1", "L2", "L3"]
    scheduler.close()


def test_a_long_batch_is_preempted_if_no_other_worker_can_take_a_short_one():
    worker = InProcessWorker()
    scheduler = start_scheduler(worker, limits=replace(LIMITS, short_cost=500, interactive_cost=200))
    long = hold(scheduler, worker, "long", cost=1000)
    short = submit(scheduler, "short", client="other")
    until(lambda: worker.cancelled == [0])
    worker.resume.set()
    assert results(short, long) == ["SHORT", "LONG"]
    scheduler.close()


def test_a_long_batch_is_preempted_a_limited_number_of_times():
    worker = InProcessWorker()
    scheduler = start_scheduler(worker, limits=replace(LIMITS, short_cost=500, interactive_cost=200))
    long = hold(scheduler, worker, "long", cost=1000)
    next(iter(scheduler._choice.running[0])).preemptions = MAX_PREEMPTIONS
    submit(scheduler, "short", client="other")
    time.sleep(2 * PREEMPT_SECONDS + 0.3)
    assert worker.cancelled == []
    worker.resume.set()
    assert results(long) == ["LONG"]
    scheduler.close()


def test_a_client_above_its_limit_is_refused_and_others_are_not(scheduler, worker):
    hold(scheduler, worker)
    kept = submit(scheduler, *["x"] * 190, client="greedy")
    with pytest.raises(ClientLimitExceeded):
        submit(scheduler, *["y"] * 20, client="greedy")
    other = submit(scheduler, "other", client="other")
    with pytest.raises(QueueFull):
        submit(scheduler, *["z"] * 150, client="third")
    worker.resume.set()
    assert results(other) == ["OTHER"]
    results(kept)
    until(lambda: not scheduler.client_costs)


def test_a_cancelled_job_is_not_translated(scheduler, worker):
    hold(scheduler, worker)
    gone, kept = submit(scheduler, "gone"), submit(scheduler, "kept")
    assert gone.future.cancel()
    worker.resume.set()
    assert results(kept) == ["KEPT"]
    assert worker.batches == [["zero"], ["kept"]] and scheduler.queued == 0


def test_a_batch_of_cancelled_jobs_is_cancelled(scheduler, worker):
    held = hold(scheduler, worker, "one", "two")
    held.future.cancel()
    until(lambda: worker.cancelled == [0])
    worker.resume.set()
    assert results(submit(scheduler, "next")) == ["NEXT"]


def test_a_batch_with_one_wanted_job_is_not_cancelled(scheduler, worker):
    hold(scheduler, worker)
    gone, kept = submit(scheduler, "gone"), submit(scheduler, "kept")
    worker.resume.set()
    until(lambda: len(worker.batches) == 2)
    gone.future.cancel()
    assert results(kept) == ["KEPT"] and worker.cancelled == []


def test_a_deadline_reaches_the_worker(scheduler, worker):
    held = hold(scheduler, worker, seconds=0.5)
    with pytest.raises(TimeoutError):
        held.future.result(10)
    assert worker.cancelled == [0]


def test_an_error_reaches_its_job_and_later_jobs_run(processes):
    with pytest.raises(TaskFailed, match="ValueError: bad"):
        results(submit(processes, "error"))
    assert results(submit(processes, "good")) == ["GOOD"]


def test_a_sentence_of_a_killed_worker_is_retried(processes):
    held = submit(processes, "one", "long")
    until(lambda: held.results)
    pid = int(held.results[0][0].score)
    os.kill(pid, signal.SIGKILL)
    until(lambda: processes.failures == 1)
    assert not held.done  # another worker translates it now
    held.future.cancel()
    until(lambda: processes.ready_workers == 2)


def test_a_stopped_worker_is_replaced_and_its_sentences_are_translated(processes):
    pids = [one.worker.process.pid for one in processes.executors]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    asked = [submit(processes, f"t{number}") for number in range(10)]
    until(lambda: processes.not_ready_reason() == "no worker is ready")
    assert results(*asked) == [f"T{number}" for number in range(10)]
    until(lambda: not set(pids) & {one.worker.process.pid for one in processes.executors})
    until(lambda: processes.not_ready_reason() is None)


def test_a_stopped_idle_worker_is_replaced(processes):
    os.kill(processes.executors[0].worker.process.pid, signal.SIGSTOP)
    until(lambda: processes.failures == 1)
    until(lambda: processes.ready_workers == 2)


def test_a_sentence_that_crashes_every_worker_is_refused_and_others_in_its_batch_are_translated(processes):
    asked = [submit(processes, text) for text in ("a", "b", "die", "c", "d")]
    with pytest.raises(WorkerFailed):
        asked[2].future.result(30)
    assert results(*asked[:2], *asked[3:]) == ["A", "B", "C", "D"]
    assert processes.failures == 3


@pytest.mark.slow
def test_a_worker_that_ignores_a_cancellation_is_replaced(processes, monkeypatch):
    monkeypatch.setattr(executor, "CANCEL_SECONDS", 0.5)
    deaf = submit(processes, "deaf", seconds=0.5)
    until(lambda: processes.failures == 1)
    until(lambda: deaf.done or processes.queued == 0)
    deaf.future.cancel()
    assert results(submit(processes, "next")) == ["NEXT"]


def test_the_first_sentence_of_a_batch_waits_a_limited_time(worker):
    scheduler = start_scheduler(worker, limits=replace(LIMITS, batch_gap=0.2, batch_wait=0.5))
    jobs = []
    for number in range(12):  # one every 0.1 s: the gap never ends the batch
        jobs.append(submit(scheduler, f"t{number}"))
        time.sleep(0.1)
    results(*jobs)
    scheduler.close()
    assert len(worker.batches) > 1 and len(worker.batches[0]) < 8  # the time ended the batch, not its size


def test_abandoning_fails_all_jobs_and_refuses_new_ones(scheduler, worker):
    held, waiting = hold(scheduler, worker), submit(scheduler, "waiting")
    scheduler.abandon()
    for one in (held, waiting):
        with pytest.raises(SchedulerClosed):
            one.future.result(1)
    with pytest.raises(SchedulerClosed):
        submit(scheduler, "late")
    assert scheduler.not_ready_reason() == "the server is shutting down"


@pytest.mark.slow
def test_closing_ends_stopped_and_busy_workers():
    scheduler = start_scheduler(start=start_process)
    until(lambda: scheduler.ready_workers == 2)
    pids = [one.worker.process.pid for one in scheduler.executors]
    busy = submit(scheduler, "long")
    os.kill(pids[1], signal.SIGSTOP)
    closing = threading.Thread(target=scheduler.close)
    closing.start()
    closing.join(40)
    assert not closing.is_alive() and isinstance(busy.future.exception(1), SchedulerClosed | CancelledError)
    assert all(one.worker.process.poll() is not None for one in scheduler.executors)

"""Several batches at once on one worker process: each gets its own results, and a sentence that crashes it is found."""

import os
import signal
import threading

import pytest

from regard.serve.scheduler import Scheduler
from regard.serve.worker_process import WorkerCommand, WorkerFailed, WorkerProcess
from tests.serve.fake_worker import UPPERCASE_WORKER, command
from tests.serve.test_scheduler import LIMITS, M, make_job, until

# The worker of the other tests runs one task at a time; this one has a thread for each.
LOOP = "while True:\n    task = tasks.get()"
SEVERAL = UPPERCASE_WORKER.replace(LOOP, "def run():\n  " + LOOP)
SEVERAL += "for _ in range(3): threading.Thread(target=run, daemon=True).start()\nrun()\n"


def start_process():
    plain = command()
    return WorkerProcess(WorkerCommand([plain.arguments[0], "-c", SEVERAL], {}))


@pytest.fixture
def said():
    return []


@pytest.fixture(params=[1])
def scheduler(request, said):
    """A scheduler with one shared worker, or more."""
    workers = request.param
    found = Scheduler(start_process, workers=workers, tasks=3, models={M: 0}, limits=LIMITS, say=said.append)
    until(lambda: found.ready_workers == workers)
    yield found
    found.close()


def texts(job):
    return [best[0].text for best in job.future.result(30)]


def pid_of(job):
    return int(job.future.result(30)[0][0].score)


def test_a_batch_runs_beside_one_that_takes_long(scheduler):
    long, short = make_job(["long"]), make_job(["a", "b"])
    scheduler.submit(long)
    until(lambda: scheduler.queued == 0)
    scheduler.submit(short)
    assert texts(short) == ["A", "B"]
    assert not long.future.done()
    long.future.cancel()
    after = make_job(["c"])
    scheduler.submit(after)
    assert texts(after) == ["C"]
    assert pid_of(after) == pid_of(short)


def test_many_batches_at_once_get_their_own_results(scheduler):
    jobs = [make_job([f"{number}-{place}" for place in range(5)], client=f"client {number}") for number in range(20)]
    threads = [threading.Thread(target=scheduler.submit, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for number, job in enumerate(jobs):
        assert texts(job) == [f"{number}-{place}" for place in range(5)]


def test_a_worker_that_is_killed_with_several_batches_is_counted_and_reported_once(scheduler, said):
    jobs = [make_job(["long"], client=f"client {number}") for number in range(3)]
    for job in jobs:
        scheduler.submit(job)
        until(lambda: scheduler.queued == 0)
    until(lambda: len(scheduler.executors[0]._running) == 3)
    os.kill(scheduler.executors[0].worker.process.pid, signal.SIGKILL)
    until(lambda: scheduler.failures)
    for job in jobs:
        job.future.cancel()
    until(lambda: scheduler.ready_workers == 1)
    assert scheduler.failures == 1
    assert len(said) == 1 and "ended; starting a new one" in said[0]


@pytest.mark.parametrize("scheduler", [2], indirect=True)
def test_what_crashed_a_worker_is_retried_while_another_worker_is_busy(scheduler):
    busy = make_job(["long"])
    scheduler.submit(busy)
    until(lambda: scheduler.queued == 0)
    bad = make_job(["die"], client="bad")
    scheduler.submit(bad)
    with pytest.raises(WorkerFailed, match="several workers failed"):
        bad.future.result(30)
    assert not busy.future.done() and scheduler.failures == 3


def test_a_process_that_is_killed_is_replaced_and_its_sentences_translated(scheduler):
    waiting = [make_job(["long"], client=f"client {number}") for number in range(2)]
    for job in waiting:
        scheduler.submit(job)
        until(lambda: scheduler.queued == 0)
    first = scheduler.executors[0].worker.process.pid
    os.kill(first, signal.SIGKILL)
    for job in waiting:
        job.future.cancel()
    job = make_job(["x"])
    scheduler.submit(job)
    assert texts(job) == ["X"]
    assert pid_of(job) != first


def test_a_sentence_that_crashes_workers_is_refused_and_no_other(scheduler):
    bad = make_job(["die"], client="bad")
    good = [make_job([f"good {number}"], client=f"good {number}") for number in range(6)]
    for job in [*good[:3], bad, *good[3:]]:
        scheduler.submit(job)
    for number, job in enumerate(good):
        assert texts(job) == [f"GOOD {number}"]
    with pytest.raises(WorkerFailed, match="several workers failed"):
        bad.future.result(30)

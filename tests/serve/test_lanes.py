"""Several batches at once on one worker process: each gets its own results, and a sentence that crashes it is found."""

import os
import signal
import threading
import time

import pytest

from regard.serve.lanes import LaneStarter
from regard.serve.scheduler import Scheduler
from regard.serve.worker_process import WorkerCommand, WorkerFailed, WorkerProcess
from tests.serve.fake_worker import UPPERCASE_WORKER, command
from tests.serve.test_scheduler import LIMITS, M, make_job

# The worker of the other tests runs one task at a time; this one has a thread for each.
LOOP = "while True:\n    task = tasks.get()"
SEVERAL = UPPERCASE_WORKER.replace(LOOP, "def run():\n  " + LOOP)
SEVERAL += "for _ in range(3): threading.Thread(target=run, daemon=True).start()\nrun()\n"


def start_process():
    plain = command()
    return WorkerProcess(WorkerCommand([plain.arguments[0], "-c", SEVERAL], {}))


@pytest.fixture
def starter():
    return LaneStarter(start_process, 3)


@pytest.fixture
def scheduler(starter):
    found = Scheduler(starter, workers=1, lanes=3, models={M: 0}, limits=LIMITS, say=lambda text: None)
    ends = time.monotonic() + 20
    while not found.ready_workers and time.monotonic() < ends:
        time.sleep(0.01)
    yield found
    found.close()


def texts(job):
    return [best[0].text for best in job.future.result(30)]


def pid_of(job):
    return int(job.future.result(30)[0][0].score)


def test_executors_share_a_process_until_its_lanes_are_taken(starter):
    lanes = [starter() for _ in range(4)]
    pids = [lane.process.pid for lane in lanes]
    assert len(set(pids[:3])) == 1 and pids[3] != pids[0]
    lanes[0].kill()
    for lane in lanes[:3]:
        with pytest.raises(WorkerFailed):
            lane.receive(10)
    assert lanes[3].process.poll() is None
    assert starter().process.pid == pids[3], "it has lanes left"
    lanes[3].kill()


def test_a_batch_runs_beside_one_that_takes_long(scheduler):
    long, short = make_job(["long"]), make_job(["a", "b"])
    scheduler.submit(long)
    time.sleep(0.3)
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


def test_a_process_that_is_killed_is_replaced_and_its_sentences_translated(scheduler):
    waiting = [make_job(["long"], client=f"client {number}") for number in range(2)]
    for job in waiting:
        scheduler.submit(job)
    time.sleep(0.3)
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

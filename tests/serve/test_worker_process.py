"""The handle of a worker process: failures are detected, and nothing blocks for long."""

import os
import signal
import time

import pytest

from regard.serve import worker_process
from regard.serve.worker_process import WorkerFailed, WorkerProcess, process_state
from tests.serve.fake_worker import command, start_process

TASK = {"id": 0, "kind": "translate", "sentences": ["one", "two"]}


@pytest.fixture
def worker():
    found = start_process()
    while not found.loaded:
        found.receive(0.1)
    yield found
    found.kill()


def until_failure(worker, seconds=15):
    """Return the reason of the failure."""
    ends = time.monotonic() + seconds
    try:
        while time.monotonic() < ends:
            worker.receive(0.1)
    except WorkerFailed as failure:
        return str(failure)
    raise AssertionError("the worker did not fail")


def answers(worker, task):
    worker.send(task)
    while True:
        message = worker.receive(5)
        if message and message.get("id") == task["id"]:
            if "end" in message:
                return
            yield from ((number, best[0][0]) for number, best in message["ready"])


def test_results_arrive_sentence_by_sentence(worker):
    assert list(answers(worker, TASK)) == [(0, "ONE"), (1, "TWO")]
    assert worker.is_ready


def test_a_killed_worker_has_failed(worker):
    worker.process.kill()
    assert until_failure(worker) in ("ended", "was stopped")
    assert not worker.is_ready


def test_a_stopped_worker_has_failed_and_can_be_closed(worker, monkeypatch):
    monkeypatch.setattr(worker_process, "END_SECONDS", 0.5)
    os.kill(worker.process.pid, signal.SIGSTOP)
    assert until_failure(worker) == "was stopped"
    assert not worker.is_ready
    began = time.monotonic()
    worker.close()
    assert worker.process.poll() is not None and time.monotonic() - began < 2 * worker_process.END_SECONDS + 5


def test_sending_to_a_stopped_worker_does_not_block(worker):
    os.kill(worker.process.pid, signal.SIGSTOP)
    began = time.monotonic()
    worker.send({**TASK, "sentences": ["x" * 10_000_000]})  # a pipe holds 64 KiB
    assert time.monotonic() - began < 5
    assert until_failure(worker) == "was stopped"


def test_a_silent_worker_has_failed_in_any_state(worker, monkeypatch):
    monkeypatch.setattr(worker_process, "process_state", lambda pid: "R")
    monkeypatch.setattr(worker_process, "SILENT_SECONDS", 1.0)
    os.kill(worker.process.pid, signal.SIGSTOP)
    assert "has sent nothing" in until_failure(worker)


def test_a_worker_that_never_loads_has_failed(monkeypatch):
    monkeypatch.setattr(worker_process, "LOAD_SECONDS", 0.0)
    worker = WorkerProcess(command("unloadable"))
    assert until_failure(worker)
    worker.kill()


def test_an_incomplete_line_is_a_failure(worker):
    with pytest.raises(WorkerFailed):
        list(answers(worker, {**TASK, "sentences": ["one", "die"]}))


def test_an_invalid_message_is_a_failure(worker):
    with pytest.raises(WorkerFailed):
        list(answers(worker, {**TASK, "sentences": ["garbage"]}))


def test_a_task_can_be_cancelled_and_the_next_one_runs(worker):
    worker.send({**TASK, "sentences": ["one", "long"]})
    worker.send({"cancel": 0})
    while not (message := worker.receive(5)) or "end" not in message:
        pass
    assert message["end"]["error"] == "Cancelled"
    assert list(answers(worker, {**TASK, "id": 1})) == [(0, "ONE"), (1, "TWO")]


def test_closing_ends_a_worker_during_a_task(worker):
    worker.send({**TASK, "sentences": ["long"]})
    worker.close()
    assert worker.process.poll() is not None


def test_the_state_of_a_process_is_read():
    assert process_state(os.getpid()) == "R" and process_state(2**22 + 1) == ""

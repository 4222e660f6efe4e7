"""A worker process as the server sees it: whatever it does, nobody waits for it without end."""

import os
import signal
import time

import pytest

from regard.serve import worker_process
from regard.serve.worker_process import WorkerFailed, WorkerProcess, process_state
from tests.serve.fake_worker import command, real

TASK = {"id": 0, "kind": "translate", "sentences": ["one", "two"]}


@pytest.fixture
def worker():
    found = real()
    while not found.loaded:
        found.receive(0.1)
    yield found
    found.kill()


def until_failure(worker, seconds=15):
    """Why it failed."""
    ends = time.monotonic() + seconds
    try:
        while time.monotonic() < ends:
            worker.receive(0.1)
    except WorkerFailed as failure:
        return str(failure)
    raise AssertionError("it did not fail")


def answers(worker, task):
    worker.send(task)
    while True:
        message = worker.receive(5)
        if message and message.get("id") == task["id"]:
            if "end" in message:
                return
            yield from ((number, best[0][0]) for number, best in message["ready"])


def test_it_answers_sentence_by_sentence(worker):
    assert list(answers(worker, TASK)) == [(0, "ONE"), (1, "TWO")]
    assert worker.reacts


def test_one_that_is_killed_has_failed(worker):
    worker.process.kill()
    assert until_failure(worker) in ("ended", "was stopped")
    assert not worker.reacts


def test_one_that_is_stopped_has_failed_soon_and_can_still_be_ended(worker):
    os.kill(worker.process.pid, signal.SIGSTOP)
    assert until_failure(worker) == "was stopped"
    assert not worker.reacts
    began = time.monotonic()
    worker.close()
    assert worker.process.poll() is not None and time.monotonic() - began < 2 * worker_process.END_SECONDS + 5


def test_a_message_to_one_that_is_stopped_blocks_nobody(worker):
    os.kill(worker.process.pid, signal.SIGSTOP)
    began = time.monotonic()
    worker.send({**TASK, "sentences": ["x" * 10_000_000]})  # a pipe holds 64 KiB
    assert time.monotonic() - began < 5
    assert until_failure(worker) == "was stopped"


def test_one_that_is_silent_has_failed_whatever_its_state(worker, monkeypatch):
    monkeypatch.setattr(worker_process, "process_state", lambda pid: "R")
    monkeypatch.setattr(worker_process, "SILENT_SECONDS", 1.0)
    os.kill(worker.process.pid, signal.SIGSTOP)
    assert "silent" in until_failure(worker)


def test_one_that_never_loads_has_failed(monkeypatch):
    monkeypatch.setattr(worker_process, "LOAD_SECONDS", 0.0)
    worker = WorkerProcess(command("unloadable"))
    assert until_failure(worker)
    worker.kill()


def test_half_a_line_is_no_answer(worker):
    with pytest.raises(WorkerFailed):
        list(answers(worker, {**TASK, "sentences": ["one", "die"]}))


def test_what_is_not_our_protocol_is_a_failure(worker):
    with pytest.raises(WorkerFailed):
        list(answers(worker, {**TASK, "sentences": ["garbage"]}))


def test_a_task_can_be_cancelled_and_the_worker_goes_on(worker):
    worker.send({**TASK, "sentences": ["one", "long"]})
    worker.send({"cancel": 0})
    while not (message := worker.receive(5)) or "end" not in message:
        pass
    assert message["end"]["error"] == "Cancelled"
    assert list(answers(worker, {**TASK, "id": 1})) == [(0, "ONE"), (1, "TWO")]


def test_closing_ends_it_in_the_middle_of_a_task(worker):
    worker.send({**TASK, "sentences": ["long"]})
    worker.close()
    assert worker.process.poll() is not None


def test_the_state_of_a_process_is_known():
    assert process_state(os.getpid()) == "R" and process_state(2**22 + 1) == ""

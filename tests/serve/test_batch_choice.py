"""What a worker with the engine takes: as much as its searches have room for, and as much as the other workers have."""

from dataclasses import replace

import pytest

from regard.config import SearchOptions
from regard.serve import batch_choice
from regard.serve.batch_choice import BatchChoice
from regard.serve.fair_queue import FairQueue
from tests.serve.test_scheduler import LIMITS, make_job

COSTS = replace(LIMITS, short_cost=500, shared_long_cost=2000)


@pytest.fixture(autouse=True)
def rows(monkeypatch):
    monkeypatch.setattr(batch_choice, "MOST_ROWS", 8)


def shared_workers(count):
    choice = BatchChoice(FairQueue(), COSTS, workers=count, shared=True)
    for worker in range(count):
        assert choice.take(worker) == []
    return choice


def texts(items):
    return [item.input for item in items]


def push(choice, *sentences, **options):
    choice.queue.push(make_job(sentences, **options))


def test_a_worker_takes_as_many_sentences_as_its_searches_have_rows_for():
    choice = shared_workers(1)
    push(choice, *"abcdef", options=SearchOptions(beam=2))
    taken = choice.take(0)
    assert texts(taken) == ["a", "b", "c", "d"]
    assert choice.take(0) == []
    choice.remove(0, taken[:1])
    assert texts(choice.take(0)) == ["e"], "the rows of a sentence are free as soon as it ends"


def test_a_sentence_with_more_rows_than_there_are_runs_alone():
    choice = shared_workers(1)
    push(choice, "wide", options=SearchOptions(beam=16))
    wide = choice.take(0)
    assert texts(wide) == ["wide"]
    push(choice, "a")
    assert choice.take(0) == []
    choice.remove(0, wide)
    assert texts(choice.take(0)) == ["a"]


def test_workers_get_equally_many_sentences():
    choice = shared_workers(3)
    push(choice, *"abc")
    assert texts(choice.take(0)) == ["a"]
    push(choice, *"defg")
    for worker in (0, 1, 2, 0, 1, 2):
        choice.take(worker)
    assert sorted(map(len, choice.running.values())) == [2, 2, 3]


def test_a_worker_that_failed_does_not_count():
    choice = shared_workers(2)
    choice.running.pop(1)
    push(choice, *"abcd")
    assert len(choice.take(0)) == 4


def test_long_sentences_leave_room_for_short_ones():
    choice = shared_workers(1)
    push(choice, "l1", "l2", "l3", cost=1000)
    assert texts(choice.take(0)) == ["l1", "l2"]
    assert choice.take(0) == []
    push(choice, "short", cost=100)
    assert texts(choice.take(0)) == ["short"]


def test_what_was_running_when_a_worker_failed_runs_alone():
    choice = shared_workers(2)
    push(choice, "a")
    (failed,) = choice.take(0)
    choice.remove(0, [failed])
    push(choice, *"bc")
    assert texts(choice.take(1)) == ["b"]
    failed.failures = 1
    choice.queue.push_front([failed])
    assert texts(choice.take(1)) == ["c"], "it is busy, so it takes what did not fail"
    assert texts(choice.take(0)) == ["a"], "it has nothing else"
    push(choice, "d")
    assert choice.take(0) == []
    assert texts(choice.take(1)) == ["d"]

"""Clients share fairly, and so do the jobs of one client; short jobs do not wait for long ones."""

import time
from random import Random

import pytest

from regard.config import SearchOptions
from regard.serve.fair_queue import FairQueue, Sentence, TranslationJob

OPTIONS = SearchOptions(beam=1)


def anything(item):
    return True


def job(client, texts, *, cost=10, options=OPTIONS, model="m"):
    return TranslationJob(client, model, options, [Sentence(text, cost) for text in texts], time.monotonic() + 60)


def filled(*jobs):
    queue = FairQueue()
    for one in jobs:
        queue.push(one)
    return queue


def take(queue, count=1, allowed=anything):
    """Take items one at a time; return their texts."""
    found = []
    for _ in range(count):
        first = queue.first(allowed)
        queue.take([first])
        found.append(first.input)
    return found


def test_a_new_client_is_served_before_earlier_work_of_another():
    queue = filled(job("greedy", [f"g{n}" for n in range(100)]))
    take(queue, 10)
    queue.push(job("other", ["o0"]))
    assert take(queue) == ["o0"]


def test_clients_take_turns_regardless_of_their_number_of_jobs():
    queue = filled(*[job("many", [f"m{n}"]) for n in range(4)], job("one", ["o0", "o1", "o2", "o3"]))
    assert take(queue, 8) == ["m0", "o0", "m1", "o1", "m2", "o2", "m3", "o3"]


def test_jobs_of_one_client_take_turns():
    queue = filled(job("a", [f"long{n}" for n in range(50)]))
    take(queue, 20)
    queue.push(job("a", ["short0", "short1"]))
    assert {"short0", "short1"} <= set(take(queue, 4))


def test_shares_are_by_cost_and_not_by_number():
    queue = filled(job("dear", ["d0", "d1"], cost=30), job("cheap", [f"c{n}" for n in range(6)], cost=10))
    taken = take(queue, 8)
    assert taken[:4] == ["d0", "c0", "c1", "c2"] and taken.index("d1") <= 5


def test_a_long_job_gets_its_share_while_short_ones_keep_arriving():
    queue = filled(job("a", [f"long{n}" for n in range(100)]))
    taken = take(queue, 5)
    for number in range(100):  # one new job for each item that is taken
        queue.push(job("a", [f"short{number}"]))
        taken += take(queue)
    # Each item of the long job that is taken leaves one more short job waiting to share with.
    assert sum(text.startswith("long") for text in taken) >= 5 + 10


def test_a_client_gains_nothing_by_submitting_again():
    queue = filled(job("a", [f"a{n}" for n in range(10)]), job("b", [f"b{n}" for n in range(10)]))
    take(queue, 10)
    for number in range(5):
        queue.push(job("new", [f"n{number}"], cost=1))
        queue.push(job("again", [f"x{number}"], cost=1000))
    taken = take(queue, 6)
    assert sum(text.startswith("x") for text in taken) == 1, taken


def test_batch_candidates_have_one_group_and_come_in_fair_order():
    queue = filled(
        job("a", [f"a{n}" for n in range(20)]),
        job("b", ["b0"]),
        job("c", ["c0"], options=SearchOptions(beam=2)),
        job("d", ["d0"], model="other"),
    )
    first = queue.first(anything)
    candidates = [item.input for item in queue.candidates(first, 2, anything)]
    assert first.input == "a0" and candidates[0] == "b0" and candidates[1:] == [f"a{n}" for n in range(1, 7)]


def test_failed_items_come_first_and_are_not_charged_again():
    queue = filled(job("a", ["a0", "a1"]), job("b", ["b0"]))
    first = queue.first(anything)
    queue.take([first])
    first.failures += 1
    queue.push_front([first])
    assert len(queue) == 3
    assert take(queue, 4 - 1) == ["a0", "b0", "a1"] and len(queue) == 0


def test_a_job_can_be_removed_with_all_its_items():
    kept, removed = job("a", ["k0", "k1"]), job("a", ["r0", "r1"])
    queue = filled(removed, kept)
    item = queue.first(anything)
    queue.take([item])
    item.failures = 1
    queue.push_front([item])
    queue.remove(removed)
    assert len(queue) == 2 and take(queue, 2) == ["k0", "k1"] and queue.first(anything) is None


def test_items_that_are_not_allowed_are_skipped():
    queue = filled(job("a", ["long"], cost=1000), job("b", ["short"], cost=1))
    assert take(queue, 1, lambda item: item.cost < 10) == ["short"]
    assert queue.first(lambda item: item.cost < 10) is None and take(queue) == ["long"]


def test_idle_clients_are_forgotten():
    queue = FairQueue()
    for number in range(1000):
        queue.push(job(f"client {number}", ["x"]))
        take(queue)
    assert len(queue.clients.flows) < 10


def waiting(queue):
    """Return all queued items."""
    flows = [flow for client in queue.clients.flows.values() for flow in client.jobs.flows.values()]
    return [*queue.retries, *(item for flow in flows for item in flow.items)]


@pytest.mark.parametrize("seed", range(30))
def test_no_item_is_lost_or_taken_twice_whatever_happens_to_batches(seed):
    random, queue = Random(seed), FairQueue()
    jobs, running, done = [], [], []
    for _ in range(200):
        action = random.choice(["push", "take", "take", "finish", "fail", "preempt", "remove"])
        if action == "push":
            texts = [f"t{number}" for number in range(random.randint(1, 6))]
            jobs.append(job(random.choice("abc"), texts, cost=random.randint(1, 9)))
            queue.push(jobs[-1])
        elif action == "take" and (first := queue.first(lambda item: True)):
            batch = [first, *random.sample(others := queue.candidates(first, 4, lambda item: True), len(others) // 2)]
            queue.take(batch)
            running.append(batch)
        elif action == "remove" and jobs:
            gone = jobs.pop(random.randrange(len(jobs)))
            queue.remove(gone)
            running = [[item for item in batch if item.job is not gone] for batch in running]
            done = [item for item in done if item.job is not gone]
        elif running and action in ("finish", "fail", "preempt"):
            batch = running.pop(random.randrange(len(running)))
            if action == "finish":
                done += batch
            elif action == "preempt":
                queue.push_back(batch)
            else:
                for item in batch:
                    item.failures += 1
                queue.push_front(batch)
        everywhere = [*waiting(queue), *done, *(item for batch in running for item in batch)]
        assert len(queue) == len(waiting(queue))
        assert sorted((one.job.number, one.number) for one in everywhere) == sorted(
            (one.number, sentence) for one in jobs for sentence in range(len(one.sentences))
        )

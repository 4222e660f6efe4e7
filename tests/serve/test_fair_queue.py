"""Clients share fairly, and so do the requests of one client; short requests do not wait for long ones."""

import time
from random import Random

import pytest

from regard.decoding.hypotheses import SearchOptions
from regard.serve.fair_queue import FairQueue
from regard.serve.work import Sentence, Work

OPTIONS = SearchOptions(beam=1)


def anything(item):
    return True


def work(client, texts, *, cost=10, options=OPTIONS, model="m"):
    return Work(client, model, options, [Sentence(text, cost) for text in texts], time.monotonic() + 60)


def filled(*works):
    queue = FairQueue()
    for one in works:
        queue.push(one)
    return queue


def take(queue, count=1, allowed=anything):
    """Take one item at a time; who they were of, and their texts."""
    found = []
    for _ in range(count):
        first = queue.first(allowed)
        queue.take([first])
        found.append(first.text)
    return found


def test_a_newcomer_goes_before_what_another_client_asked_for_earlier():
    queue = filled(work("greedy", [f"g{n}" for n in range(100)]))
    take(queue, 10)
    queue.push(work("other", ["o0"]))
    assert take(queue) == ["o0"]


def test_clients_take_turns_however_many_requests_each_has():
    queue = filled(*[work("many", [f"m{n}"]) for n in range(4)], work("one", ["o0", "o1", "o2", "o3"]))
    assert take(queue, 8) == ["m0", "o0", "m1", "o1", "m2", "o2", "m3", "o3"]


def test_requests_of_one_client_take_turns():
    queue = filled(work("a", [f"long{n}" for n in range(50)]))
    take(queue, 20)
    queue.push(work("a", ["short0", "short1"]))
    assert {"short0", "short1"} <= set(take(queue, 4))


def test_turns_are_by_cost_and_not_by_number():
    queue = filled(work("dear", ["d0", "d1"], cost=30), work("cheap", [f"c{n}" for n in range(6)], cost=10))
    taken = take(queue, 8)
    assert taken[:4] == ["d0", "c0", "c1", "c2"] and taken.index("d1") <= 5


def test_a_long_request_gets_its_share_while_short_ones_keep_coming():
    queue = filled(work("a", [f"long{n}" for n in range(100)]))
    taken = take(queue, 5)
    for number in range(100):  # a new request for every one that is served
        queue.push(work("a", [f"short{number}"]))
        taken += take(queue)
    # Each long one that is served leaves one more short one waiting, with which it shares from then on.
    assert sum(text.startswith("long") for text in taken) >= 5 + 10


def test_a_client_that_was_served_gains_nothing_by_coming_back():
    queue = filled(work("a", [f"a{n}" for n in range(10)]), work("b", [f"b{n}" for n in range(10)]))
    take(queue, 10)
    for number in range(5):
        queue.push(work("new", [f"n{number}"], cost=1))
        queue.push(work("again", [f"x{number}"], cost=1000))
    taken = take(queue, 6)
    assert sum(text.startswith("x") for text in taken) == 1, taken


def test_batches_hold_what_goes_together_in_fair_order():
    queue = filled(
        work("a", [f"a{n}" for n in range(20)]),
        work("b", ["b0"]),
        work("c", ["c0"], options=SearchOptions(beam=2)),
        work("d", ["d0"], model="other"),
    )
    first = queue.first(anything)
    candidates = [item.text for item in queue.candidates(first, 2, anything)]
    assert first.text == "a0" and candidates[0] == "b0" and candidates[1:] == [f"a{n}" for n in range(1, 7)]


def test_what_failed_goes_first_and_is_not_charged_again():
    queue = filled(work("a", ["a0", "a1"]), work("b", ["b0"]))
    first = queue.first(anything)
    queue.take([first])
    first.failures += 1
    queue.push_front([first])
    assert len(queue) == 3
    assert take(queue, 4 - 1) == ["a0", "b0", "a1"] and len(queue) == 0


def test_a_request_can_be_removed_with_all_that_waits_of_it():
    kept, removed = work("a", ["k0", "k1"]), work("a", ["r0", "r1"])
    queue = filled(removed, kept)
    item = queue.first(anything)
    queue.take([item])
    item.failures = 1
    queue.push_front([item])
    queue.remove(removed)
    assert len(queue) == 2 and take(queue, 2) == ["k0", "k1"] and queue.first(anything) is None


def test_what_is_not_allowed_now_is_passed_over():
    queue = filled(work("a", ["long"], cost=1000), work("b", ["short"], cost=1))
    assert take(queue, 1, lambda item: item.cost < 10) == ["short"]
    assert queue.first(lambda item: item.cost < 10) is None and take(queue) == ["long"]


def test_clients_that_wait_for_nothing_are_forgotten():
    queue = FairQueue()
    for number in range(1000):
        queue.push(work(f"client {number}", ["x"]))
        take(queue)
    assert len(queue.clients.flows) < 10


def waiting(queue):
    """Every item that waits, wherever it does."""
    flows = [request for client in queue.clients.flows.values() for request in client.requests.flows.values()]
    return [*queue.retries, *(item for request in flows for item in request.items)]


@pytest.mark.parametrize("seed", range(30))
def test_no_item_is_lost_or_taken_twice_whatever_happens_to_batches(seed):
    random, queue = Random(seed), FairQueue()
    works, running, done = [], [], []
    for _ in range(200):
        action = random.choice(["push", "take", "take", "finish", "fail", "preempt", "remove"])
        if action == "push":
            texts = [f"t{number}" for number in range(random.randint(1, 6))]
            works.append(work(random.choice("abc"), texts, cost=random.randint(1, 9)))
            queue.push(works[-1])
        elif action == "take" and (first := queue.first(lambda item: True)):
            batch = [first, *random.sample(others := queue.candidates(first, 4, lambda item: True), len(others) // 2)]
            queue.take(batch)
            running.append(batch)
        elif action == "remove" and works:
            gone = works.pop(random.randrange(len(works)))
            queue.remove(gone)
            running = [[item for item in batch if item.work is not gone] for batch in running]
            done = [item for item in done if item.work is not gone]
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
        assert sorted((one.work.number, one.number) for one in everywhere) == sorted(
            (one.number, sentence) for one in works for sentence in range(len(one.sentences))
        )

"""Searches on the device that follow each other closely: from several threads and streams, and before copies have ended."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.cuda_graph_model import CudaGraphModel
from regard.decoding.hypothesis import never_stop
from regard.decoding.search import search
from regard.decoding.search_tensors import AHEAD, Room, SearchTensors
from regard.models import build_model

TABLE = {"kind": "transformer", "width": 64, "num_layers": 2, "num_heads": 2, "hidden": 64, "tie": "none"}
FIRST = [[5, 4, 3, 2], [4, 2], [9, 8, 7, 6, 5, 4, 3, 2]]
SECOND = [[7, 7, 2], [3, 9, 8, 2], [6, 2]]
DELAY = 500_000_000  # cycles of the GPU: about a quarter of a second, far longer than the host needs for a search


def fresh(device="cpu"):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = build_model(TABLE, source_size=40, target_size=40).eval().to(device)
    with torch.no_grad():
        model.output *= 4
    return model


class WatchedLock:
    """A lock that says when a thread has to wait for it."""

    def __init__(self):
        self.lock, self.waited_for = threading.Lock(), threading.Event()

    def __enter__(self):
        if not self.lock.acquire(blocking=False):
            self.waited_for.set()
            self.lock.acquire()

    def __exit__(self, *error):
        self.lock.release()


@pytest.mark.parametrize("beam", [1, 3])
def test_a_search_that_begins_in_another_thread_waits_for_the_first_one(beam, monkeypatch):
    model, options = CudaGraphModel(fresh()), SearchOptions(beam=beam, nbest=beam, max_extra=6)
    wanted = [search(model, Ragged.from_lists(sources), options=options) for sources in (FIRST, SECOND)]
    lock = WatchedLock()
    monkeypatch.setattr(model.device_search, "_lock", lock)
    calls, others = [], []

    def begin_another():
        calls.append(1)
        if len(calls) == 4:  # in the middle of the first search
            second = pool.submit(search, model, Ragged.from_lists(SECOND), options=options)
            second.add_done_callback(lambda _: lock.waited_for.set())
            others.append(second)
            lock.waited_for.wait()

    with ThreadPoolExecutor(1) as pool:
        first = search(model, Ragged.from_lists(FIRST), options=options, check=begin_another)
        assert [first, others[0].result()] == wanted


def test_a_search_that_is_stopped_lets_the_next_one_begin():
    model, options = CudaGraphModel(fresh()), SearchOptions(beam=2, max_extra=6)

    def stop():
        raise InterruptedError

    wanted = search(model, Ragged.from_lists(FIRST), options=options)
    with pytest.raises(InterruptedError):
        search(model, Ragged.from_lists(SECOND), options=options, check=stop)
    assert search(model, Ragged.from_lists(FIRST), options=options) == wanted


def tensors_for(model, sources):
    """The tensors of a search that has room for four steps, before its first step."""
    tensors = SearchTensors(model, Room(8, 1024, 64), beams=2, max_positions=64)
    tensors.pool.steps = 4
    load(tensors, sources)
    return tensors


def load(tensors, sources):
    source = Ragged.from_lists(sources, tensors.device)
    tensors.load(source, [4] * len(sources), SearchOptions(beam=2), (1,))
    tensors.encode(source)


class CopyUnderWay:
    """Stands for an event: notes what pinned memory holds when the host waits for its copy."""

    def __init__(self, memory):
        self.memory, self.seen = memory, []

    def record(self):
        pass

    def synchronize(self):
        self.seen.append(self.memory.clone())


@torch.inference_mode()
def test_what_a_search_is_given_stays_until_it_is_copied():
    tensors = tensors_for(fresh(), FIRST)
    tensors.loaded = CopyUnderWay(tensors.given_by_host)
    before = tensors.given_by_host.clone()
    load(tensors, SECOND)
    assert [one.tolist() for one in tensors.loaded.seen] == [before.tolist()]
    assert not torch.equal(tensors.given_by_host, before)


@torch.inference_mode()
def test_numbers_that_arrive_after_a_search_has_more_room_are_seen():
    model = fresh()
    tensors, larger = tensors_for(model, FIRST), SearchTensors(model, Room(8, 2048, 64), beams=2, max_positions=64)
    for _ in range(2):
        tensors.step(3)
        tensors.count_step()
    larger.take_over(tensors, 8)
    tensors.remaining_on_host[1] = 77  # what the second step found, copied late
    assert larger.remaining() == 77


@pytest.mark.gpu
@torch.inference_mode()
def test_pinned_memory_is_not_overwritten_before_its_copy():
    """Searches of so few steps never wait for the device."""
    # In bfloat16 the encoder is recorded too, and nothing else waits either.
    model = CudaGraphModel(fresh("cuda").for_inference(precision=torch.bfloat16))
    options = SearchOptions(beam=2, nbest=2, max_length=2)
    given = [Ragged.from_lists(sources, torch.device("cuda")) for sources in (FIRST, SECOND)]
    wanted = [search(model, source, options=options) for source in given]
    assert wanted == [search(model, source, options=options) for source in given]
    torch.cuda._sleep(DELAY)
    pending = [model.device_search.launch(source, options=options, demands=None, check=never_stop) for source in given]
    assert [[best for _, best in one()] for one in pending] == wanted


@pytest.mark.gpu
@torch.inference_mode()
def test_more_room_loses_no_number_that_is_still_to_be_copied():
    model = fresh("cuda")
    tensors, larger = tensors_for(model, FIRST), SearchTensors(model, Room(8, 2048, 64), beams=2, max_positions=64)
    tensors.step(3)  # compiles the kernels
    load(tensors, FIRST)
    tensors.remaining_on_host.fill_(99)
    torch.cuda._sleep(DELAY)
    for _ in range(AHEAD):
        tensors.step(3)
        tensors.count_step()
    larger.take_over(tensors, 8)
    assert larger.remaining() == 3  # after the first step, which ends no sentence


@pytest.mark.gpu
@pytest.mark.parametrize("beam", [1, 4])
def test_threads_with_streams_of_their_own_find_what_one_thread_finds(beam):
    model, options = CudaGraphModel(fresh("cuda")), SearchOptions(beam=beam, nbest=beam, max_extra=6)
    lists = [FIRST, SECOND, [[3 + n % 7, 5, 2] for n in range(20)], [*SECOND, *FIRST]] * 5
    wanted = [search(model, Ragged.from_lists(sources, torch.device("cuda")), options=options) for sources in lists]

    def find(sources):
        with torch.cuda.stream(torch.cuda.Stream()):
            return search(model, Ragged.from_lists(sources, torch.device("cuda")), options=options)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(find, lists)) == wanted

"""A search can be stopped between its steps, and allocates only what it uses."""

import threading

import pytest
import torch

from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.search import search, search_all, search_each, stream_greedy
from regard.errors import Cancelled, DeadlineExceeded, DecodeError
from regard.models import build_model

SOURCES = [[5, 6, 7, 2], [8, 9, 2], [10, 2]]


@pytest.fixture(scope="module")
def tiny_model():
    """A function that builds a small model of some kind."""

    def build(kind):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            table = {"kind": kind, "width": 8, "num_layers": 1, "num_heads": 2, "hidden": 16}
            return build_model(table, source_size=12, target_size=12).eval()

    return build


class After:
    """A check that stops the search at the given call."""

    def __init__(self, calls, error=Cancelled):
        self.calls, self.seen, self.error = calls, 0, error

    def __call__(self):
        self.seen += 1
        if self.seen > self.calls:
            raise self.error("stopped")


@pytest.mark.parametrize("beam", [1, 4])
def test_a_search_stops_between_steps(tiny_model, beam):
    check = After(3)
    options = SearchOptions(beam=beam, min_length=40)
    with pytest.raises(Cancelled):
        search(tiny_model("transformer"), Ragged.from_lists(SOURCES), options=options, check=check)
    assert check.seen == 4


@pytest.mark.parametrize("beam", [1, 4])
def test_a_check_that_does_not_raise_changes_nothing(tiny_model, beam):
    model, options = tiny_model("transformer"), SearchOptions(beam=beam)
    plain = search(model, Ragged.from_lists(SOURCES), options=options)
    assert search(model, Ragged.from_lists(SOURCES), options=options, check=After(10_000)) == plain


def test_batches_in_several_threads_all_stop(tiny_model, threads):
    model, batches = tiny_model("transformer"), [lambda: Ragged.from_lists(SOURCES)] * 4
    threads(2)
    with pytest.raises(DeadlineExceeded):
        list(search_all(model, batches, options=SearchOptions(beam=2), check=After(3, DeadlineExceeded)))
    assert not [one for one in threading.enumerate() if one.name.startswith("search")]


def test_refinement_stops_between_iterations(tiny_model):
    check = After(3)
    options = SearchOptions(beam=2, iterations=10)
    with pytest.raises(Cancelled):
        list(search_all(tiny_model("cmlm"), [lambda: Ragged.from_lists(SOURCES)], options=options, check=check))
    assert check.seen == 4


def test_a_streamed_translation_stops_between_tokens(tiny_model):
    tokens = []
    with pytest.raises(Cancelled):
        stream_greedy(
            tiny_model("transformer"),
            SOURCES[0],
            options=SearchOptions(max_extra=50),
            on_token=tokens.append,
            check=After(0),
        )
    assert tokens == []


def test_stopping_a_search_raises_a_decode_error():
    assert issubclass(Cancelled, DecodeError) and issubclass(DeadlineExceeded, DecodeError)


def test_greedy_search_allocates_memory_for_its_output_and_not_for_its_limit(tiny_model, monkeypatch):
    monkeypatch.setitem(SearchOptions.BOUNDS, "max_extra", (0, 10**13))
    # 80 terabytes per sentence if all of it were allocated.
    options = SearchOptions(beam=1, max_extra=10**13)
    each = search_each(tiny_model("transformer"), Ragged.from_lists(SOURCES), options=options, check=After(200))
    with pytest.raises(Cancelled):
        list(each)


def test_greedy_search_finds_the_same_when_its_output_has_to_grow(tiny_model, monkeypatch):
    model, options = tiny_model("transformer"), SearchOptions(beam=1, min_length=30, max_length=33)
    with_room = search(model, Ragged.from_lists(SOURCES), options=options)
    monkeypatch.setattr("regard.decoding.row_search.FIRST_COLUMNS", 2)
    assert search(model, Ragged.from_lists(SOURCES), options=options) == with_room

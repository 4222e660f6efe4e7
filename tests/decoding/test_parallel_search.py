"""Batches searched in parallel give the same results as one after the other, and their errors are raised."""

import pytest
import torch

from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.search import search, search_all
from regard.errors import DataError
from regard.models import build_model

TABLE = {"kind": "transformer", "width": 16, "num_layers": 2, "num_heads": 2, "hidden": 32}


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def sources():
    generator = torch.Generator().manual_seed(1)
    return [
        Ragged.from_lists(
            [[*torch.randint(3, 20, (2 + (n + k) % 5,), generator=generator).tolist(), 2] for k in range(4)]
        )
        for n in range(7)
    ]


def made(*batches):
    """Return batches as the functions that make them."""
    return [lambda batch=batch: batch for batch in batches]


@pytest.mark.parametrize("beam", [1, 3])
def test_parallel_batches_give_what_single_batches_give(two_threads, beam):
    torch.manual_seed(0)
    model = build_model(TABLE, source_size=20, target_size=20).eval()
    options = SearchOptions(beam=beam, max_extra=3)
    together = {
        (batch, sentence): [one.ids for one in best]
        for batch, found in search_all(model, made(*sources()), options=options)
        for sentence, best in found
    }
    alone = {
        (batch, sentence): [one.ids for one in best]
        for batch, source in enumerate(sources())
        for sentence, best in enumerate(search(model, source, options=options))
    }
    assert together == alone
    assert torch.get_num_threads() == 2, "the caller keeps its threads"


def test_an_error_in_one_batch_is_raised_to_the_caller(two_threads):
    model = build_model({**TABLE, "positions": "learned", "max_positions": 8}, source_size=20, target_size=20).eval()
    too_long = Ragged.from_lists([[5] * 20 + [2]])
    results = search_all(model, made(sources()[0], too_long), options=SearchOptions(beam=1, max_extra=1))
    with pytest.raises(DataError, match="21 tokens"):
        list(results)

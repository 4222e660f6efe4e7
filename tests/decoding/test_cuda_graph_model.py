"""Steps of search replayed from CUDA graphs. The law for all models is in tests/laws/test_search.py."""

import pytest
import torch

from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding import cuda_graph_model
from regard.decoding.cuda_graph_model import CudaGraphModel, with_cuda_graphs
from regard.decoding.search import search, search_each
from regard.models import build_model

TABLE = {"kind": "transformer", "width": 32, "num_layers": 2, "num_heads": 2, "hidden": 64, "tie": "none"}
SOURCES = [[5, 4, 3, 2], [4, 2], [9, 8, 7, 6, 5, 4, 3, 2], *([3 + n % 7, 5, 2] for n in range(20))]


def fresh(device="cpu"):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = build_model(TABLE, source_size=40, target_size=40).eval().to(device)
    with torch.no_grad():
        model.output *= 4
    return model


def stepped(model):
    """The model with recorded steps, which searches with the host as it does for uncommon options."""
    recorded = CudaGraphModel(model)
    recorded.device_search = None
    return recorded


def test_a_model_on_a_cpu_stays_as_it_is():
    model = fresh()
    assert with_cuda_graphs(model) is model


def test_the_least_recently_used_graph_is_dropped(monkeypatch):
    monkeypatch.setattr(cuda_graph_model, "MAX_GRAPHS", 2)
    model = stepped(fresh())
    for count in (1, 2, 4, 1):
        search(model, Ragged.from_lists(SOURCES[:count]), options=SearchOptions(beam=2, max_extra=2))
    assert [size.sentences for size in model._graphs] == [4, 1]


def test_a_search_whose_graph_another_search_took_over_is_refused():
    model, options = stepped(fresh()), SearchOptions(beam=2, max_extra=4)
    first = search_each(model, Ragged.from_lists(SOURCES[:3]), options=options)
    next(first)
    search(model, Ragged.from_lists(SOURCES[1:4]), options=options)
    with pytest.raises(AssertionError, match="another search"):
        list(first)


def test_searches_with_many_rows_use_the_models_own_steps(monkeypatch):
    monkeypatch.setattr(cuda_graph_model, "MAX_ROWS", 8)
    model = stepped(fresh())
    search(model, Ragged.from_lists(SOURCES[:5]), options=SearchOptions(beam=2))
    assert not model._graphs


@pytest.mark.gpu
@pytest.mark.parametrize("beam", [1, 4])
def test_replayed_graphs_find_what_the_model_finds(beam):
    model, options = fresh("cuda"), SearchOptions(beam=beam, nbest=beam, max_extra=40)
    assert isinstance(with_cuda_graphs(model), CudaGraphModel)
    replayed = stepped(model)
    for sources in (SOURCES, SOURCES[:1], SOURCES[2:5], SOURCES):
        source = Ragged.from_lists(sources, torch.device("cuda"))
        found, expected = search(replayed, source, options=options), search(model, source, options=options)
        for one, other in zip(found, expected, strict=True):
            assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-3)
            assert one[0].ids == other[0].ids

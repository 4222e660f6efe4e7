"""Search on the device finds what search with the host finds, for every Transformer and every rule of stopping.

On a CPU it runs step by step in plain PyTorch; with a GPU, its kernels and graphs are compared with the CPU too.
"""

import copy

import numpy as np
import pytest
import torch

import regard
from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding import device_search, search_tensors
from regard.decoding.cuda_graph_model import CudaGraphModel
from regard.decoding.search import search
from regard.exchange.held_out import OWN_SENTENCES
from regard.models.base import StaticSeq2Seq
from regard.text.tokenizer import EOS
from tests.laws.conftest import VOCABULARY, small, tables_of, tables_with, trained_to_copy

SOURCES = [[5, 6, 7, 8, 2], [9, 2], [3, 4, 5, 2], [10, 10, 2], [7, 2], [4, 4, 4, 4, 4, 4, 2], [6, 3, 2]]
OPTIONS = {
    "greedy": {"beam": 1},
    "greedy, token scores": {"beam": 1, "token_scores": True},
    "beam": {"beam": 4, "nbest": 4},
    "three of four": {"beam": 4, "nbest": 3, "early_stopping": False},
    "one of three, never": {"beam": 3, "nbest": 1, "early_stopping": "never", "length_penalty": 1.3},
    "power": {"beam": 5, "nbest": 5, "length_penalty_kind": "power", "early_stopping": "never"},
    "no penalty": {"beam": 2, "nbest": 2, "length_penalty": 0.0, "early_stopping": False},
    "all of the vocabulary": {"beam": 12, "nbest": 12, "max_length": 3},
    "long enough": {"beam": 3, "nbest": 3, "min_length": 4, "max_extra": 4, "token_scores": True},
    "one token": {"beam": 3, "nbest": 2, "max_length": 1},
    "two tokens": {"beam": 3, "nbest": 3, "max_length": 2, "early_stopping": "never"},
}


@pytest.fixture(params=tables_of(StaticSeq2Seq))
def model(request):
    made = small(request.param)
    with torch.no_grad():
        # Larger logits: outputs of different lengths, and no near-ties.
        made.output_weight.mul_(3)
    return made


def same(found, expected):
    assert [[one.ids for one in best] for best in found] == [[one.ids for one in best] for best in expected]
    for best, others in zip(found, expected, strict=True):
        for one, other in zip(best, others, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)
            if other.token_scores is None:
                assert one.token_scores is None
            else:
                assert one.token_scores == pytest.approx(other.token_scores, abs=1e-4)


@pytest.mark.parametrize(
    ("model", "name"), tables_with(StaticSeq2Seq, OPTIONS, every=("greedy", "beam", "long enough")), indirect=["model"]
)
def test_the_device_finds_what_the_host_finds(model, name, monkeypatch):
    if not model.has_static_state:
        pytest.skip("has no static state")
    monkeypatch.setattr(search_tensors, "LEAST", search_tensors.Room(1, 1, 1))
    options = SearchOptions(**{"max_extra": 3, **OPTIONS[name]})
    batches = [Ragged.from_lists(sources) for sources in (SOURCES[:2], SOURCES, SOURCES[2:5])]
    wanted = [search(model, source, options=options) for source in batches]
    for steps in (2, 64):  # with two, search has to make room on the way
        monkeypatch.setattr(device_search, "FIRST_STEPS", steps)
        recorded = CudaGraphModel(model)
        for source, expected in zip(batches, wanted, strict=True):
            same(search(recorded, source, options=options), expected)
        assert recorded.device_search.by_beams and not recorded._graphs


FOR_TRAINED = ["greedy, token scores", "beam", "three of four", "one of three, never", "two tokens"]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def assert_found_on(device, model, sources, options):
    """The outputs are those of the plain model on the CPU, token for token in float32."""
    recorded = CudaGraphModel(copy.deepcopy(model).to(device))
    for given in options:
        wanted = search(model, Ragged.from_lists(sources), options=SearchOptions(**given))
        found = search(recorded, Ragged.from_lists(sources, torch.device(device)), options=SearchOptions(**given))
        assert [best[0].ids for best in found] == [best[0].ids for best in wanted]
        for some, others in zip(found, wanted, strict=True):
            assert [one.score for one in some] == pytest.approx([one.score for one in others], abs=1e-4)
            if others[0].token_scores is not None:
                assert some[0].token_scores == pytest.approx(others[0].token_scores, abs=1e-4)
    assert recorded.device_search.by_beams and not recorded._graphs


@pytest.mark.slow(unless=["transformer-paper-cpu"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("table", tables_of(StaticSeq2Seq))
def test_trained_models_find_the_same(table, device, tmp_path_factory):
    if not small(table).has_static_state:
        pytest.skip("has no static state")
    model, loss = trained_to_copy(table, tmp_path_factory)
    assert loss < 0.95 * np.log(VOCABULARY - 3)
    generator = np.random.default_rng(2)
    sources = [[*generator.integers(3, VOCABULARY, size=1 + number % 6).tolist(), EOS] for number in range(18)]
    assert_found_on(device, model, sources, [{"max_extra": 4, **OPTIONS[name]} for name in FOR_TRAINED])


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("run", ["en-de", "de-en"])
def test_pretrained_models_find_the_same(run, device):
    translator = regard.load(run, device="cpu", engine="torch")
    pairs = [line.split("\t") for line in OWN_SENTENCES.read_text(encoding="utf-8").splitlines()]
    sources = [[*translator.encode(pair[run == "en-de"], protect=False)[0], EOS] for pair in pairs[::4]]
    assert_found_on(device, translator.model, sources, [OPTIONS[name] for name in FOR_TRAINED])


@pytest.mark.parametrize("beam", [1, 4])
def test_neighbours_change_nothing(model, beam):
    if not model.has_static_state:
        pytest.skip("has no static state")
    recorded, options = CudaGraphModel(model), SearchOptions(beam=beam, nbest=beam, max_extra=4)
    together = search(recorded, Ragged.from_lists(SOURCES), options=options)
    alone = [search(recorded, Ragged.from_lists([source]), options=options)[0] for source in SOURCES[:3]]
    same(together[:3], alone)

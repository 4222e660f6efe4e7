"""Search on the device: its kernels and its CUDA graphs. Laws for all models are in tests/laws/test_device_search.py."""

from functools import partial

import pytest
import torch

from regard import kernels
from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding import device_search
from regard.decoding.cuda_graph_model import CudaGraphModel
from regard.decoding.device_search import fits
from regard.decoding.hypothesis import length_penalty
from regard.decoding.plain_beam_step import advance_plain
from regard.decoding.search import search, search_all
from regard.decoding.search_tensors import round_up
from regard.errors import DataError, DecodeError
from regard.models import build_model
from regard.nn.decoder_pool import DecoderPool, DecoderShape

TABLE = {"kind": "transformer", "width": 64, "num_layers": 2, "num_heads": 2, "hidden": 64, "tie": "none"}
SOURCES = [[5, 4, 3, 2], [4, 2], [9, 8, 7, 6, 5, 4, 3, 2], *([3 + n % 7, 5, 2] for n in range(20))]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_kernels = pytest.mark.skipif(
    not (kernels.installed() and (DEVICE == "cuda" or kernels.interpreted())),
    reason="needs Triton, and a GPU or TRITON_INTERPRET=1",
)


def fresh(device="cpu", **more):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = build_model({**TABLE, **more}, source_size=400, target_size=400).eval().to(device)
    with torch.no_grad():
        model.output *= 4
    return model


def test_sizes_are_rounded_up_by_less_than_a_quarter():
    assert [round_up(count) for count in (1, 2, 3, 8, 9, 17, 33, 500, 513)] == [1, 2, 3, 8, 10, 20, 40, 512, 640]
    assert all(count <= round_up(count) < 1.25 * count for count in range(1, 5000))


def test_uncommon_options_are_left_to_the_host():
    assert fits(SearchOptions(beam=4, min_length=3, nbest=4), None)
    for options in ({"sample": True}, {"beam_groups": 2}, {"no_repeat_ngram": 3}, {"max_repeats": 1}, {"beam": 17}):
        assert not fits(SearchOptions(**options), None)


def test_weights_that_are_not_finite_are_refused():
    model = fresh()
    with torch.no_grad():
        model.output.fill_(float("nan"))
    for beam in (1, 3):
        with pytest.raises(DecodeError, match="not finite"):
            search(CudaGraphModel(model), Ragged.from_lists(SOURCES), options=SearchOptions(beam=beam))


@needs_kernels
@pytest.mark.parametrize("beams", [1, 3, 4])
@pytest.mark.parametrize(("width", "value_width", "window"), [(64, 64, None), (24, 40, 5)])
def test_attention_of_a_step_is_that_of_pytorch(beams, width, value_width, window):
    torch.manual_seed(2)
    groups, heads, steps, device = 5, 2, 40, torch.device(DEVICE)
    shape = DecoderShape(2, heads, width, value_width, window, torch.float32, device)
    pools = [DecoderPool(shape, beams=beams, sentences=8, slots=8 * beams * steps, tokens=60) for _ in range(2)]
    memory = torch.randn(60, 2, heads * (width + value_width), device=device)
    ancestors = torch.randint(beams, (8 * beams * steps,), dtype=torch.int32, device=device)
    places = torch.tensor([3, 1, 7, 0, 4, 2, 5, 6], dtype=torch.int32, device=device)
    offsets = torch.tensor([0, 2, 2, 40, 41, 47, 50, 55, 60, 60], dtype=torch.int32, device=device)
    for pool in pools:
        pool.memory.copy_(memory)
        pool.ancestors.copy_(ancestors)
        pool.places.copy_(places)
        pool.offsets.copy_(offsets)
        pool.steps, pool.longest = steps, 38
        pool.numbers[1] = steps
    for position in range(36):
        q, k = torch.randn(2, groups * beams, heads, width, device=device)
        v = torch.randn(groups * beams, heads, value_width, device=device)
        found = []
        for pool, allowed in zip(pools, (True, False), strict=True):
            pool.numbers[0] = position
            with kernels.allowed(allowed):
                found.append((pool.attend_past(1, q, k, v), pool.attend_memory(1, q)))
        for one, other in zip(*found, strict=True):
            assert torch.allclose(one, other, atol=1e-4), (position, (one - other).abs().max())


@needs_kernels
@pytest.mark.parametrize("beams", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("early", [0, 1, 2])
def test_candidates_are_chosen_as_pytorch_chooses_them(beams, early):
    from regard.kernels.beam_step import advance

    torch.manual_seed(3)
    places, steps, size, eos, nbest = 6, 12, 2500, 2, max(1, beams - 1)
    rows, slots = places * beams, places * beams * steps

    def integers(count):
        return torch.zeros(count, dtype=torch.int32, device=DEVICE)

    plain = {name: integers(rows) for name in ("tokens", "ended_steps", "ended_beams", "ended_tokens")}
    plain |= {name: integers(slots) for name in ("ancestors", "history_tokens", "history_parents")}
    plain |= {
        "numbers": torch.tensor([0, steps, 2, early, nbest], dtype=torch.int32, device=DEVICE),
        "places": torch.tensor([3, 1, 4, 0, 2, 5], dtype=torch.int32, device=DEVICE),
        "limits": torch.tensor([3, 12, 1, 7, 12, 9], dtype=torch.int32, device=DEVICE),
        "active": torch.tensor([1, 1, 1, 1, 1, 0], dtype=torch.int32, device=DEVICE),
        "penalties": 1.0 + torch.arange(20, dtype=torch.float64, device=DEVICE) / 7,
        "banned": torch.zeros(size, dtype=torch.uint8, device=DEVICE).index_fill_(
            0, torch.tensor([1, 5], device=DEVICE), 1
        ),
        "logp": torch.full((places, beams), float("-inf"), device=DEVICE),
        "counts": integers(places),
        "remaining": integers(4),
        "ended_scores": torch.full((rows,), float("-inf"), dtype=torch.float64, device=DEVICE),
        "ended_logp": torch.zeros(rows, device=DEVICE),
        "history_logp": torch.zeros(slots, device=DEVICE),
    }
    plain["logp"][:, 0] = 0.0
    plain["logp"] = plain["logp"].flatten()
    quick = {name: one.clone() for name, one in plain.items()}
    for step in range(steps):
        logits = torch.randn(5 * beams, size, device=DEVICE)
        logits[:, eos] += torch.randint(0, 8, (5 * beams,), device=DEVICE)
        advance(logits, quick, eos=eos, beams=beams)
        advance_plain(logits, plain, eos=eos, beams=beams, steps=steps)
        for name, one in plain.items():
            if one.is_floating_point():
                assert torch.allclose(quick[name], one, atol=1e-4), (step, name, quick[name], one)
            else:
                assert torch.equal(quick[name], one), (step, name, quick[name], one)


@pytest.mark.gpu
@pytest.mark.parametrize("beam", [1, 4])
def test_recorded_search_finds_what_the_model_finds(beam, monkeypatch):
    monkeypatch.setattr(device_search, "FIRST_STEPS", 32)
    model = fresh("cuda")
    recorded = CudaGraphModel(model)
    for more in ({}, {"early_stopping": False}, {"early_stopping": "never", "min_length": 5}, {"token_scores": True}):
        options = SearchOptions(beam=beam, nbest=beam, max_extra=40, **more)
        for sources in (SOURCES, SOURCES[:1], SOURCES[2:5], SOURCES):
            source = Ragged.from_lists(sources, torch.device("cuda"))
            found, expected = search(recorded, source, options=options), search(model, source, options=options)
            for one, other in zip(found, expected, strict=True):
                assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-3)
                assert one[0].ids == other[0].ids
    assert any(key[0] == "step" for key in recorded.device_search.graphs) and not recorded._graphs


@pytest.mark.gpu
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("more", [{}, {"positions": "rotary", "qk_norm": True, "norm": "rms"}, {"window": 3}])
def test_bfloat16_comes_close(beam, more):
    model = fresh("cuda", **more)
    rounded = CudaGraphModel(model.for_inference(precision=torch.bfloat16))
    options, source = SearchOptions(beam=beam, max_extra=40), Ragged.from_lists(SOURCES, torch.device("cuda"))
    for _ in range(2):
        found = [best[0] for best in search(rounded, source, options=options)]
    assert ("encode", beam, round_up(source.layout.total)) in rounded.device_search.graphs
    # Rounding may lead to other outputs, but what they score is nearly what the model gives them.
    for ids, one in zip(SOURCES, found, strict=True):
        labels = [*one.ids, model.eos][: options.limit(len(ids) - 1)]
        target = Ragged.from_lists([[model.bos, *labels[:-1]]], torch.device("cuda"))
        with torch.no_grad():
            memory = model.encode(Ragged.from_lists([ids], torch.device("cuda")))
            logp = model.decode(target, memory).log_softmax(-1)
        total = sum(logp[place, token].item() for place, token in enumerate(labels))
        assert one.score == pytest.approx(total / length_penalty(len(labels), options), rel=0.06, abs=0.1)


@pytest.mark.gpu
@pytest.mark.parametrize(("more", "length"), [({"positions": "learned", "max_positions": 30}, 20), ({}, 1200)])
def test_sources_may_have_as_many_tokens_as_the_model_has_positions(more, length):
    model = fresh("cuda", **more).for_inference(precision=torch.bfloat16)
    source = Ragged.from_lists([[*(3 + n % 90 for n in range(length - 1)), 2], [5, 2]], torch.device("cuda"))
    options = SearchOptions(beam=2, max_length=8)
    found, expected = search(CudaGraphModel(model), source, options=options), search(model, source, options=options)
    for one, other in zip(found, expected, strict=True):
        assert one[0].score == pytest.approx(other[0].score, rel=0.06, abs=0.1)


@pytest.mark.gpu
def test_sources_beyond_learned_positions_are_refused():
    model = CudaGraphModel(fresh("cuda", positions="learned", max_positions=30).for_inference(precision=torch.bfloat16))
    with pytest.raises(DataError, match="40 tokens but this model learned 30 positions"):
        search(model, Ragged.from_lists([[3] * 40], torch.device("cuda")), options=SearchOptions())


@pytest.mark.gpu
def test_batches_that_are_begun_in_a_thread_give_the_same_results(monkeypatch):
    model = CudaGraphModel(fresh("cuda").for_inference(precision=torch.bfloat16))
    sources = [partial(Ragged.from_lists, SOURCES[n : n + 5], torch.device("cuda")) for n in range(0, 20, 5)]
    options = SearchOptions(beam=3, max_extra=9)
    in_thread = dict(search_all(model, sources, options=options))
    monkeypatch.setattr("regard.decoding.search._num_workers", lambda model, batches: 0)
    assert in_thread == dict(search_all(model, sources, options=options))

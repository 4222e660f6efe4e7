"""Beam search against brute force, and what it does at the edges."""

import itertools

import pytest
import torch

from regard.data.ragged import Ragged
from regard.decoding.hypotheses import SearchOptions, length_penalty
from regard.decoding.search import search
from regard.decoding.topk import log_normalizer, top_k
from regard.errors import DecodeError
from regard.models import build_model

SOURCE = [5, 4, 3, 2]


@pytest.fixture(params=range(4))
def tiny(request):
    """A model of six words whose random opinions are strong enough to differ between prefixes."""
    with torch.random.fork_rng():
        torch.manual_seed(request.param)
        table = {"kind": "transformer", "width": 8, "num_layers": 1, "num_heads": 2, "hidden": 16, "tie": "none"}
        model = build_model(table, source_size=6, target_size=6).eval()
    with torch.no_grad():
        model.output *= 4
    return model


def all_hypotheses(model, limit, alpha):
    """Every output of at most `limit` tokens with its score, best first; one that fills the limit needs no EOS."""
    scored = []
    for length in range(limit + 1):
        for ids in itertools.product([0, 3, 4, 5], repeat=length):
            labels = [*ids, 2] if length < limit else list(ids)
            with torch.no_grad():
                target = Ragged.from_lists([[1, *labels[:-1]]])
                logp = model.decode(target, model.encode(Ragged.from_lists([SOURCE]))).log_softmax(-1)
            total = sum(logp[place, token].item() for place, token in enumerate(labels))
            scored.append((total / length_penalty(len(labels), alpha), list(ids)))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_a_wide_beam_finds_the_brute_force_best(tiny, alpha):
    options = SearchOptions(beam=300, nbest=3, length_penalty=alpha, max_length=4)
    found = search(tiny, Ragged.from_lists([SOURCE]), options=options)[0]
    expected = all_hypotheses(tiny, 4, alpha)[:3]
    assert [one.ids for one in found] == [ids for _, ids in expected]
    assert [one.score for one in found] == pytest.approx([score for score, _ in expected], abs=1e-4)


def test_a_wider_beam_is_never_worse_here(tiny):
    scores = [
        search(tiny, Ragged.from_lists([SOURCE]), options=SearchOptions(beam=beam, length_penalty=0.0, max_length=4))[
            0
        ][0].score
        for beam in (1, 300)
    ]
    assert scores[0] <= scores[1] + 1e-5


def test_length_penalty_by_hand():
    assert length_penalty(1, 0.6) == 1.0  # (5 + 1) / 6
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(7, 0.0) == 1.0


@pytest.mark.parametrize("width", [5, 130, 1000, 8192])
@pytest.mark.parametrize("k", [1, 4])
def test_top_k_is_torchs(generator, width, k):
    scores = torch.randn(6, width, generator=generator)
    values, places = top_k(scores, k)
    expected = torch.topk(scores, k, dim=-1)
    assert torch.equal(values, expected.values)
    assert torch.equal(places, expected.indices)


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("width", [5, 8192, 37001])
@pytest.mark.parametrize("peak", [0.0, 18.0, 200.0])  # even, as trained models have it, and too large for exp
def test_the_normalizer_is_exact_to_many_digits(generator, layout, width, peak):
    logits = torch.randn(6, width, generator=generator)
    logits[:, 3] += peak
    if layout == "columns":
        logits = logits.t().contiguous().t()
    expected = logits.double().logsumexp(dim=-1)
    torch.testing.assert_close(log_normalizer(logits).double(), expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"beam": 0}, "beam is 0; it must be from 1 to 1,000"),
        ({"beam": 2, "nbest": 3}, "or for a wider beam"),
        ({"length_penalty": -1.0}, "it must be from 0 to 100"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong, sentence):
    with pytest.raises(DecodeError, match=sentence):
        SearchOptions(**wrong)

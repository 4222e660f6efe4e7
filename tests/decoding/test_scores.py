"""Scores in tensors and in arrays: search gets the same from both."""

import numpy as np
import pytest
import torch

from regard.decoding.numpy_scores import NumpyScores
from regard.decoding.sampling import SampleOptions
from regard.decoding.torch_scores import TorchScores

ROWS, COLUMNS, EOS = 6, 300, 2
NEVER = float("-inf")


@pytest.fixture
def both():
    logits = np.random.default_rng(5).normal(size=(ROWS, COLUMNS)).astype(np.float32) * 3
    with torch.inference_mode():
        yield TorchScores(torch.from_numpy(logits.copy()), EOS), NumpyScores(logits.copy())


def restrict(scores):
    scores.prepare(normalized=True)
    values = scores.take([1, 4], [7, 9])
    scores.ban_columns([1])
    scores.ban_columns(range(200, 280))
    scores.ban_rows([4])
    scores.ban(np.array([0, 0, 1]), np.array([5, 6, 7]))
    scores.put([1, 4], [7, 9], values)


def test_entries_that_are_banned_or_put_back_are_the_same(both):
    one, other = both
    restrict(one)
    restrict(other)
    assert np.array_equal(one.logits.numpy(), other.logits) and len(one) == len(other) == ROWS
    assert one.likeliest() == other.likeliest() and other.likeliest()[4] == 9


@pytest.mark.parametrize("beams", [1, 2, 3])
def test_the_best_continuations_are_the_same(both, beams):
    logp = np.linspace(-1, 0, ROWS, dtype=np.float32)
    found = []
    for scores, placed in zip(both, (torch.from_numpy(logp), logp), strict=True):
        restrict(scores)
        found.append(scores.best(placed, beams=beams, count=8, filler=EOS))
    possible = found[0][0] > NEVER
    assert np.array_equal(possible, found[1][0] > NEVER)
    assert found[0][0][possible] == pytest.approx(found[1][0][possible], abs=1e-4)
    assert all(
        np.array_equal(one[possible], other[possible])
        for one, other in zip(*found, strict=True)
        if one.dtype == np.int64
    )
    continued = [
        scores.continued(placed, [0, 3], [8, 9])
        for scores, placed in zip(both, (torch.from_numpy(logp), logp), strict=True)
    ]
    assert continued[0] == pytest.approx(continued[1], abs=1e-4)


def test_the_likeliest_tokens_have_the_same_probabilities(both):
    one, other = both
    for scores in both:
        scores.prepare(normalized=True)
    first, second = one.choose(), other.choose()
    assert first.tokens.tolist() == second.tokens.tolist()
    assert first.logp == pytest.approx(second.logp, abs=1e-5) and (first.logp < 0).all()
    for scores in both:
        scores.prepare(normalized=False)
        assert scores.choose().logp is None
    assert (
        one.repeat(2).likeliest()
        == other.repeat(2).likeliest()
        == [token for token in one.likeliest() for _ in range(2)]
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.0}, {"temperature": 0.5, "top_k": 3}, {"top_p": 0.6}, {"epsilon": 0.05}, {"top_k": 1}],
    ids=str,
)
def test_the_same_numbers_draw_the_same_tokens(both, options):
    one, other = both
    for seed in range(40):
        numbers = np.random.default_rng(seed).random(ROWS)
        drawn = [scores.draw(SampleOptions(**options), numbers).tokens.tolist() for scores in (one, other)]
        assert drawn[0] == drawn[1]


def test_a_small_vocabulary_has_few_continuations():
    scores = NumpyScores(np.array([[0.0, 1.0, NEVER]], dtype=np.float32))
    scores.prepare(normalized=True)
    found, tokens, rows = scores.best(np.zeros(1, dtype=np.float32), beams=1, count=4, filler=EOS)
    assert tokens[0, :2].tolist() == [1, 0] and rows.tolist() == [[0, 0, 0]] and found[0, 2] == NEVER

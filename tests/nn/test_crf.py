"""A conditional random field, compared with the enumeration of all sequences of labels."""

from itertools import pairwise, product

import pytest
import torch

from regard.data.ragged import Layout, Ragged, StaticLayout
from regard.nn.crf import Crf

L = 3


@pytest.fixture
def crf():
    made = Crf(L)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return made


def scores_of(lengths, seed=2):
    return torch.randn(sum(lengths), L, generator=torch.Generator().manual_seed(seed))


def total(crf, scores, labels):
    """The score of a sequence of labels, as the definition says."""
    steps = sum(crf.transitions[a, b] for a, b in pairwise(labels))
    own = sum(scores[place, label] for place, label in enumerate(labels))
    return crf.first[labels[0]] + own + steps + crf.last[labels[-1]]


def every(crf, scores):
    """The score of every sequence of labels."""
    return {labels: total(crf, scores, labels) for labels in product(range(L), repeat=len(scores))}


LENGTHS = [3, 1, 4]
LABELS = [[0, 2, 1], [2], [1, 1, 0, 2]]


def test_the_loss_is_minus_the_log_of_the_share_among_all_sequences(crf):
    scores, layout = scores_of(LENGTHS), Layout(LENGTHS)
    labels = torch.tensor([label for one in LABELS for label in one])
    expected = 0.0
    for own, given in zip(Ragged(scores, layout).split(), LABELS, strict=True):
        sums = every(crf, own)
        expected += torch.stack(list(sums.values())).logsumexp(0) - sums[tuple(given)]
    torch.testing.assert_close(crf.loss(scores, labels, layout), expected)


def test_the_best_labels_are_those_of_the_highest_score(crf):
    scores, layout = scores_of(LENGTHS), Layout(LENGTHS)
    found = Ragged(crf.best(scores, layout), layout).split()
    for own, labels in zip(Ragged(scores, layout).split(), found, strict=True):
        sums = every(crf, own)
        assert tuple(labels.tolist()) == max(sums, key=sums.__getitem__)


def test_marginals_are_the_shares_of_the_sequences_with_a_label(crf):
    scores = scores_of([3])
    with torch.inference_mode():
        found = crf.marginals(scores, Layout([3]))
    sums = every(crf, scores)
    weights = {labels: one.exp() for labels, one in sums.items()}
    for place, label in product(range(3), range(L)):
        share = sum(one for labels, one in weights.items() if labels[place] == label) / sum(weights.values())
        torch.testing.assert_close(found[place, label], share)


def test_a_token_without_a_label_is_skipped(crf):
    scores = scores_of([4])
    kept = torch.tensor([0, 2, 3])
    expected = crf.loss(scores[kept], torch.tensor([1, 2, 0]), Layout([3]))
    torch.testing.assert_close(crf.loss(scores, torch.tensor([1, -1, 2, 0]), Layout([4])), expected)
    first = crf.loss(scores[1:], torch.tensor([1, 2, 0]), Layout([3]))
    torch.testing.assert_close(crf.loss(scores, torch.tensor([-1, 1, 2, 0]), Layout([4])), first)


def test_dummy_tokens_of_a_static_batch_add_nothing_to_loss_or_gradient(crf):
    # Two sentences of 2 and 1 tokens, three dummy tokens at position 0 of a third one, and an empty one.
    static = StaticLayout(
        torch.tensor([0, 1, 0, 0, 0, 0], dtype=torch.int32),
        torch.tensor([0, 0, 1, 2, 2, 2], dtype=torch.int32),
        torch.tensor([0, 2, 3, 6, 6], dtype=torch.int32),
        longest=5,
    )
    labels = torch.tensor([0, 1, 2, -1, -1, -1], dtype=torch.int32)
    scores = scores_of([6]).requires_grad_()
    loss = crf.loss(scores, labels, static)
    loss.backward()
    torch.testing.assert_close(loss, crf.loss(scores.detach()[:3], labels[:3], Layout([2, 1])))
    assert scores.grad[:3].abs().sum() > 0 and not scores.grad[3:].any()
    assert all(parameter.grad.isfinite().all() for parameter in crf.parameters())

"""The hidden tests of the exercise bug_loss."""

import math

import torch

from regard.learn.expecting import Program, expect


def test_shift(own: Program) -> None:
    """The decoder reads bos and the labels but the last."""
    found = own.shifted_right(torch.tensor([[7, 8, 2]]), 1)
    expect(found, torch.tensor([[1, 7, 8]]), given="labels = [[7, 8, 2]], bos = 1")


def test_distribution(own: Program) -> None:
    """The label has 1 - ε, and the other words share ε."""
    found = own.target_distribution(torch.tensor([[2]]), 4, 0.3)
    expect(found, torch.tensor([[[0.1, 0.1, 0.7, 0.1]]]), given="labels = [[2]], V = 4, epsilon = 0.3")


def test_sum(own: Program) -> None:
    """A distribution sums to 1."""
    found = own.target_distribution(torch.tensor([0, 3]), 5, 0.1).sum(dim=-1)
    expect(found, torch.ones(2), given="the sums for labels = [0, 3], V = 5, epsilon = 0.1")


def test_uniform_logits(own: Program) -> None:
    """A model that knows nothing pays ln V per label."""
    total, count = own.loss_and_count(torch.zeros(1, 2, 4), torch.tensor([[1, 2]]), 0.1, 0)
    expect(
        (total, count), (2 * math.log(4), 2), given="logits = zeros(1, 2, 4), labels = [[1, 2]], epsilon = 0.1, pad = 0"
    )


def test_padding(own: Program) -> None:
    """Padding costs nothing and is not counted."""
    total, count = own.loss_and_count(torch.zeros(1, 3, 4), torch.tensor([[1, 0, 0]]), 0.1, 0)
    expect(
        (total, count), (math.log(4), 1), given="logits = zeros(1, 3, 4), labels = [[1, 0, 0]], epsilon = 0.1, pad = 0"
    )


def test_perplexity(own: Program) -> None:
    """Perplexity is that of the model, without smoothing: 4 for four words that are equally likely."""
    found = own.perplexity(torch.zeros(1, 2, 4), torch.tensor([[1, 2]]), 0)
    expect(found, 4.0, given="logits = zeros(1, 2, 4), labels = [[1, 2]], pad = 0")


def test_best_model(own: Program) -> None:
    """No loss is below the entropy of its targets, which a model with exactly these probabilities reaches."""
    entropy = -(0.7 * math.log(0.7) + 0.3 * math.log(0.1))
    total, _ = own.loss_and_count(torch.tensor([[[0.1, 0.1, 0.7, 0.1]]]).log(), torch.tensor([[2]]), 0.3, 9)
    expect(total, entropy, given="the probabilities [0.1, 0.1, 0.7, 0.1], labels = [[2]], epsilon = 0.3")

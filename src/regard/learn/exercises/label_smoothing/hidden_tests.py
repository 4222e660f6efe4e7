"""The hidden tests of the exercise label_smoothing."""

import math

import torch

from regard.learn.expecting import Program, expect


def test_targets(own: Program) -> None:
    """The label has 1 - ε and its share of ε; every word, the label too, has a share of ε/V."""
    expected = torch.tensor([[0.1, 0.7, 0.1, 0.1]])
    expect(own.smoothed_targets(torch.tensor([1]), 4, 0.4), expected, given="labels = [1], V = 4, epsilon = 0.4")


def test_sum(own: Program) -> None:
    """Each row is a distribution: it sums to 1."""
    found = own.smoothed_targets(torch.tensor([0, 2, 2]), 5, 0.1)
    expect(found.sum(dim=-1), torch.ones(3), given="the sums of smoothed_targets([0, 2, 2], V = 5, epsilon = 0.1)")


def test_without_smoothing(own: Program) -> None:
    """With ε = 0 the targets are 1 for the label and 0 for every other word."""
    expected = torch.tensor([[0.0, 0.0, 1.0]])
    expect(own.smoothed_targets(torch.tensor([2]), 3, 0.0), expected, given="labels = [2], V = 3, epsilon = 0")


def test_uniform_logits(own: Program) -> None:
    """A model that knows nothing pays ln V per label, whatever ε is."""
    found = own.smoothed_loss(torch.zeros(2, 4), torch.tensor([1, 2]), 0.1, 0)
    expect(found, 2 * math.log(4), given="logits = zeros(2, 4), labels = [1, 2], epsilon = 0.1, pad = 0")


def test_loss(own: Program) -> None:
    """The loss is -Σ target · log-probability: with probabilities 3/4 and 1/4, 0.9 · ln(4/3) + 0.1 · ln 4 for the first."""
    logits = torch.tensor([[math.log(3), 0.0]])
    found = own.smoothed_loss(logits, torch.tensor([0]), 0.2, 9)
    expect(
        found,
        0.9 * math.log(4 / 3) + 0.1 * math.log(4),
        given="logits = [[ln 3, 0]], labels = [0], epsilon = 0.2, pad = 9",
    )


def test_padding(own: Program) -> None:
    """Labels that are padding cost nothing."""
    logits = torch.tensor([[0.0, 0.0, 0.0], [50.0, 0.0, 0.0]])
    found = own.smoothed_loss(logits, torch.tensor([1, 2]), 0.1, 2)
    expect(found, math.log(3), given="logits = [[0, 0, 0], [50, 0, 0]], labels = [1, 2], epsilon = 0.1, pad = 2")


def test_sum_over_labels(own: Program) -> None:
    """Losses of labels are summed: three times as many cost three times as much. Division comes later, once."""
    found = own.smoothed_loss(torch.zeros(3, 2), torch.tensor([1, 1, 1]), 0.1, 0)
    expect(found, 3 * math.log(2), given="logits = zeros(3, 2), labels = [1, 1, 1], epsilon = 0.1, pad = 0")


def test_sure_model(own: Program) -> None:
    """A model that is too sure pays for it: with logits of 100 and 0, about ε/2 · 100, and not 0."""
    found = own.smoothed_loss(torch.tensor([[100.0, 0.0]]), torch.tensor([0]), 0.1, 9)
    expect(found, 5.0, given="logits = [[100, 0]], labels = [0], epsilon = 0.1, pad = 9")

"""The hidden tests of the exercise bug_attention."""

import math

import torch
from torch import Tensor

from regard.learn.expecting import Program, expect


def parameters(d_model: int) -> dict[str, Tensor]:
    """Queries are zero, so all scores are equal; keys, values and the output are the input itself."""
    found = {f"b_{one}": torch.zeros(d_model) for one in "QKVO"} | {f"W_{one}": torch.eye(d_model) for one in "KVO"}
    return found | {"W_Q": torch.zeros(d_model, d_model)}


def test_mean(own: Program) -> None:
    """Equal scores give the mean of all positions."""
    x, every = torch.tensor([[[2.0, 4.0], [6.0, 8.0]]]), torch.ones(1, 2, 2, dtype=torch.bool)
    found = own.self_attention(x, parameters(2), 2, every)
    expect(
        found, torch.tensor([[[4.0, 6.0], [4.0, 6.0]]]), given="x = [[[2, 4], [6, 8]]], equal scores, every mask True"
    )


def test_causal_mean(own: Program) -> None:
    """Under a causal mask, position i is the mean of the positions up to i."""
    x, causal = torch.tensor([[[2.0], [4.0], [9.0]]]), torch.ones(1, 3, 3, dtype=torch.bool).tril()
    found = own.self_attention(x, parameters(1), 1, causal)
    expect(found, torch.tensor([[[2.0], [3.0], [5.0]]]), given="x = [[[2], [4], [9]]], equal scores, a causal mask")


def test_weights_sum_to_one(own: Program) -> None:
    """The weights of a query sum to 1, whatever is hidden."""
    Q, K = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4)
    found = own.attention_weights(Q, K, torch.tensor([[[[True, False], [True, True]]]]))
    given = "two equal scores, mask = [[True, False], [True, True]]"
    expect(found, torch.tensor([[[[1.0, 0.0], [0.5, 0.5]]]]), given=given)


def test_later_word(own: Program) -> None:
    """Changing the last word changes nothing at the positions before it."""
    causal, weights = torch.ones(1, 2, 2, dtype=torch.bool).tril(), parameters(1) | {"W_Q": torch.eye(1)}
    first = own.self_attention(torch.tensor([[[1.0], [0.0]]]), weights, 1, causal)[:, 0]
    given = "x = [[[1], [3]]] in place of [[[1], [0]]], a causal mask; the first position"
    expect(own.self_attention(torch.tensor([[[1.0], [3.0]]]), weights, 1, causal)[:, 0], first, given=given)


def test_softmax(own: Program) -> None:
    """Scores of ln 3 and 0 are weights of 3/4 and 1/4, also for large scores."""
    Q, K = torch.tensor([[[[math.log(3)], [1000.0]]]]), torch.tensor([[[[1.0], [0.0]]]])
    found = own.attention_weights(Q, K, torch.ones(1, 1, 2, 2, dtype=torch.bool))
    expect(found, torch.tensor([[[[0.75, 0.25], [1.0, 0.0]]]]), given="Q = [[ln 3], [1000]], K = [[1], [0]]")


def test_biases(own: Program) -> None:
    """Biases are added."""
    weights = parameters(2) | {"b_V": torch.tensor([1.0, 0.0]), "b_O": torch.tensor([0.0, 7.0])}
    found = own.self_attention(torch.tensor([[[2.0, 3.0]]]), weights, 2, torch.ones(1, 1, 1, dtype=torch.bool))
    expect(found, torch.tensor([[[3.0, 10.0]]]), given="x = [[[2, 3]]], b_V = [1, 0], b_O = [0, 7]")

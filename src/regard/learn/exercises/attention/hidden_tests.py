"""The hidden tests of the exercise attention. Their numbers can be redone by hand."""

import math

import torch

from regard.learn.expecting import Program, expect


def test_equal_scores(own: Program) -> None:
    """Equal scores give the mean of the values."""
    Q, K, V = torch.zeros(1, 2), torch.eye(2), torch.tensor([[2.0], [4.0]])
    expect(own.attention(Q, K, V), torch.tensor([[3.0]]), given="Q = [[0, 0]], K = [[1, 0], [0, 1]], V = [[2], [4]]")


def test_weights_of_a_query(own: Program) -> None:
    """The weights of each query are a softmax over the keys: scores of ln 3 and 0 are weights of 3/4 and 1/4."""
    Q, K = torch.tensor([[math.log(3)], [0.0]]), torch.tensor([[1.0], [0.0]])
    given = "Q = [[ln 3], [0]], K = [[1], [0]], V = [[1, 0], [0, 1]]"
    expect(own.attention(Q, K, torch.eye(2)), torch.tensor([[0.75, 0.25], [0.5, 0.5]]), given=given)


def test_scale(own: Program) -> None:
    """Scores are divided by the square root of d_k, which is the width of a query."""
    Q, K = torch.full((1, 16), math.log(3) / 4), torch.stack([torch.ones(16), torch.zeros(16)])
    given = "Q = [[(ln 3) / 4, 16 times]], K = [[1, 16 times], [0, 16 times]], V = [[1, 0], [0, 1]]"
    expect(own.attention(Q, K, torch.eye(2)), torch.tensor([[0.75, 0.25]]), given=given)


def test_width_of_values(own: Program) -> None:
    """There may be more keys than queries, and values may be wider than keys: the result has one row per query."""
    found = own.attention(torch.zeros(2, 3), torch.zeros(4, 3), torch.ones(4, 5))
    expect(found, torch.ones(2, 5), given="Q = zeros(2, 3), K = zeros(4, 3), V = ones(4, 5)")


def test_mask(own: Program) -> None:
    """Keys that the mask hides have no weight, and the weights of the others still sum to 1."""
    Q, K, V = torch.zeros(2, 1), torch.zeros(3, 1), torch.tensor([[3.0], [6.0], [90.0]])
    mask = torch.tensor([[True, False, False], [True, True, False]])
    given = "equal scores, V = [[3], [6], [90]], mask = [[True, False, False], [True, True, False]]"
    expect(own.attention(Q, K, V, mask), torch.tensor([[3.0], [4.5]]), given=given)


def test_hidden_key_with_a_high_score(own: Program) -> None:
    """What a hidden key holds changes nothing, however high its score is."""
    Q, K, V = torch.ones(1, 1), torch.tensor([[0.0], [50.0]]), torch.tensor([[1.0], [7.0]])
    found = own.attention(Q, K, V, torch.tensor([[True, False]]))
    expect(found, torch.tensor([[1.0]]), given="Q = [[1]], K = [[0], [50]], V = [[1], [7]], mask = [[True, False]]")


def test_negative_scores(own: Program) -> None:
    """A hidden key has no weight even if all other scores are below zero."""
    Q, K, V = torch.ones(1, 1), torch.tensor([[-100.0], [0.0]]), torch.tensor([[1.0], [7.0]])
    found = own.attention(Q, K, V, torch.tensor([[True, False]]))
    expect(found, torch.tensor([[1.0]]), given="Q = [[1]], K = [[-100], [0]], V = [[1], [7]], mask = [[True, False]]")


def test_large_scores(own: Program) -> None:
    """Large scores give a weight of 1 to the largest, and no NaN."""
    Q, K = torch.tensor([[1000.0]]), torch.tensor([[1.0], [0.0]])
    found = own.attention(Q, K, torch.tensor([[5.0], [6.0]]))
    expect(found, torch.tensor([[5.0]]), given="Q = [[1000]], K = [[1], [0]], V = [[5], [6]]")


def test_batch(own: Program) -> None:
    """Batches and heads in front, [B, h, n, d_k], are computed independently."""
    Q, K = torch.zeros(2, 1, 1, 4), torch.ones(2, 1, 2, 4)
    V = torch.tensor([[[[1.0], [3.0]]], [[[10.0], [30.0]]]])
    found = own.attention(Q, K, V, torch.tensor([[[[True, True]]], [[[False, True]]]]))
    given = "Q = zeros(2, 1, 1, 4), V of the first sentence [[1], [3]], of the second [[10], [30]] with its first key hidden"
    expect(found, torch.tensor([[[[2.0]]], [[[30.0]]]]), given=given)

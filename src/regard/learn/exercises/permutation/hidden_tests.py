"""The hidden tests of the exercise permutation."""

import math

import torch
from torch import Tensor

from regard.learn.expecting import Program, expect, expect_that

X = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]])
ORDER = torch.tensor([1, 2, 0])  # not its own inverse
P = torch.eye(3)[ORDER]
ROWS = "x = [[1, 0], [0, 2], [3, 1]], order = [1, 2, 0]"


def attention_parts(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return scores, weights, values and output of self-attention with some matrices."""
    W_Q, W_K, W_V = (
        torch.tensor(one) for one in ([[1.0, 0.5], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.3]], [[2.0, 0], [1, 1]])
    )
    scores = (x @ W_Q) @ (x @ W_K).T / math.sqrt(2)
    weights = scores.softmax(dim=-1)
    return scores, weights, x @ W_V, weights @ (x @ W_V)


def causal(x: Tensor) -> Tensor:
    scores, _, values, _ = attention_parts(x)
    return scores.masked_fill(~torch.ones(3, 3, dtype=torch.bool).tril(), -math.inf).softmax(dim=-1) @ values


def test_attention(own: Program) -> None:
    """Self-attention without positions does not see the order: the difference is 0."""
    found = own.difference(lambda x: attention_parts(x)[3], X, ORDER)
    expect_that(abs(found) < 1e-4, given=f"self-attention, {ROWS}", expected="0", found=f"{found:.4g}")


def test_one_row_at_a_time(own: Program) -> None:
    """A network that treats each row on its own does not see the order either."""
    expect(own.difference(torch.relu, X - 1, ORDER), 0.0, given=f"relu of each number, {ROWS}")


def test_sum_up_to_here(own: Program) -> None:
    """A sum of all rows so far sees the order: 3 for these rows, the largest difference of two numbers."""
    expect(own.difference(lambda x: x.cumsum(dim=0), X, ORDER), 3.0, given=f"x.cumsum(dim=0), {ROWS}")


def test_positions(own: Program) -> None:
    """A layer that adds the number of the row sees the order: 2 at most."""
    found = own.difference(lambda x: x + torch.arange(3.0)[:, None], X, ORDER)
    expect(found, 2.0, given=f"x + [[0], [1], [2]], {ROWS}")
    found = own.difference(lambda x: x - torch.arange(3.0)[:, None], X, ORDER)
    expect(found, 2.0, given=f"x - [[0], [1], [2]], {ROWS}")


def test_causal_mask(own: Program) -> None:
    """Self-attention under a causal mask sees the order."""
    found = own.difference(causal, X, ORDER)
    expected = (causal(X[ORDER]) - causal(X)[ORDER]).abs().max().item()
    expect(found, expected, given=f"causal self-attention, {ROWS}")


def test_first_row(own: Program) -> None:
    """A layer that gives every row the first one sees the order: rows 0 and 1 differ by 2."""
    expect(own.difference(lambda x: x[:1].expand(3, 2), X, ORDER), 2.0, given=f"every row becomes x[0], {ROWS}")


def steps(own: Program) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """What the learner says, and what self-attention of P x is."""
    scores, weights, values, _ = attention_parts(X)
    found = own.permuted_attention(scores, weights, values, P)
    expect_that(
        isinstance(found, tuple | list) and len(found) == 4,
        given="permuted_attention(S, A, V, P)",
        expected="four tensors: scores, weights, values, output",
        found=type(found).__name__,
    )
    return tuple(found), attention_parts(P @ X)


def test_scores(own: Program) -> None:
    """The scores of P x: their rows and their columns are permuted."""
    found, expected = steps(own)
    expect(found[0], expected[0], given=f"the scores of P x, {ROWS}")


def test_weights(own: Program) -> None:
    """The weights of P x: a softmax over the keys is permuted as its scores are."""
    found, expected = steps(own)
    expect(found[1], expected[1], given=f"the weights of P x, {ROWS}")


def test_values(own: Program) -> None:
    """The values of P x: their rows are permuted."""
    found, expected = steps(own)
    expect(found[2], expected[2], given=f"the values of P x, {ROWS}")


def test_output(own: Program) -> None:
    """The output for P x is P times the output for x: self-attention is permutation equivariant."""
    found, expected = steps(own)
    expect(found[3], expected[3], given=f"the output for P x, {ROWS}")

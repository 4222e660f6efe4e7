"""The hidden tests of the exercise multi_head."""

import math

import torch
from torch import Tensor

from regard.learn.expecting import Program, expect


def test_split(own: Program) -> None:
    """A head has neighbouring columns: of a vector of four, the first head of two has the first two numbers."""
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]])
    expected = torch.tensor([[[[1.0, 2.0], [5.0, 6.0]], [[3.0, 4.0], [7.0, 8.0]]]])
    expect(own.split_heads(x, 2), expected, given="split_heads([[[1, 2, 3, 4], [5, 6, 7, 8]]], h = 2)")


def test_shape(own: Program) -> None:
    """Two sentences of three positions with d_model = 8 and h = 4 become [2, 4, 3, 2]."""
    expect(
        list(own.split_heads(torch.zeros(2, 3, 8), 4).shape), [2, 4, 3, 2], given="split_heads(zeros(2, 3, 8), h = 4)"
    )


def test_join(own: Program) -> None:
    """Joining puts the heads of each position side by side again."""
    heads = torch.tensor([[[[1.0, 2.0], [5.0, 6.0]], [[3.0, 4.0], [7.0, 8.0]]]])
    expected = torch.tensor([[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]])
    expect(own.join_heads(heads), expected, given="join_heads([[[[1, 2], [5, 6]], [[3, 4], [7, 8]]]])")


def test_joining_undoes_splitting(own: Program) -> None:
    """Splitting and joining gives the input back."""
    x = torch.arange(48.0).view(2, 3, 8)
    expect(
        own.join_heads(own.split_heads(x, 4)), x, given="join_heads(split_heads(x, 4)) with x = 0 ... 47 as [2, 3, 8]"
    )


def test_heads_attend_on_their_own(own: Program) -> None:
    """Each head has its own weights: here head 1 prefers the first position (3/4), and head 2 the second."""
    c = math.log(3) / 2
    x = torch.tensor([[[c, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, c]]])
    every = torch.ones(1, 2, 2, dtype=torch.bool)
    ones = torch.zeros(4, 4)
    # Queries: 2√2 in the first column of each head, from both positions. Keys and values are the input itself.
    ones[0, 0] = ones[0, 2] = ones[3, 0] = ones[3, 2] = 2 * math.sqrt(2) / c
    keys = torch.zeros(4, 4)
    keys[0, 0] = keys[3, 2] = 1.0
    found = own.multi_head(x, ones, keys, torch.eye(4), torch.eye(4), 2, every)
    expected = torch.tensor([[[0.75 * c, 0.0, 0.0, 0.75 * c]]]).expand(1, 2, 4)
    expect(
        found, expected, given="two positions and two heads of width 2, with keys such that head i prefers position i"
    )


def test_scale(own: Program) -> None:
    """Scores are divided by the square root of the width of a head, d_model / h, not of d_model."""
    x = torch.zeros(1, 2, 8)
    x[0, 0] = 1.0
    W_Q, every = torch.full((8, 8), math.log(3) / 16), torch.ones(1, 2, 2, dtype=torch.bool)
    # The first query is (ln 3)/2 in each column, the first key 1: q·k/√4 = ln 3 per head of width 4.
    found = own.multi_head(x, W_Q, torch.eye(8), torch.eye(8), torch.eye(8), 2, every)[0, 0]
    expect(found, torch.full((8,), 0.75), given="h = 2, d_model = 8, x = [ones(8), zeros(8)], scores of ln 3 and 0")


def test_output_projection(own: Program) -> None:
    """The heads side by side are multiplied by W_O."""
    every = torch.ones(1, 1, 1, dtype=torch.bool)
    W_O = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    found = own.multi_head(torch.tensor([[[3.0, 5.0]]]), *[torch.eye(2)] * 3, W_O, 2, every)
    expect(
        found,
        torch.tensor([[[10.0, 3.0]]]),
        given="x = [[[3, 5]]], W_Q = W_K = W_V = eye(2), W_O = [[0, 1], [2, 0]], h = 2",
    )


def test_mask(own: Program) -> None:
    """The mask [B, n, n] holds for every head, and for each sentence its own."""
    x = torch.tensor([[[2.0, 4.0], [6.0, 8.0]]]).repeat(2, 1, 1)
    mask = torch.tensor([[[True, False], [True, True]], [[True, True], [False, True]]])
    W = torch.zeros(2, 2)
    expected = torch.tensor([[[2.0, 4.0], [4.0, 6.0]], [[4.0, 6.0], [6.0, 8.0]]])
    found = own.multi_head(x, W, W, torch.eye(2), torch.eye(2), 2, mask)
    expect(found, expected, given="twice [[2, 4], [6, 8]], equal scores, masks [[1, 0], [1, 1]] and [[1, 1], [0, 1]]")


def test_reference(own: Program) -> None:
    """Eight heads on random numbers equal eight attentions that are computed one after another."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 5, 16, generator=generator)
    W = [torch.randn(16, 16, generator=generator) / 4 for _ in range(4)]
    mask = torch.ones(5, 5, dtype=torch.bool).tril().expand(2, 5, 5)
    found = own.multi_head(x, *W, 8, mask)
    expect(found, one_by_one(x, W, mask), given="x = randn(2, 5, 16), h = 8, a causal mask", tolerance=1e-3)


def one_by_one(x: Tensor, W: list[Tensor], mask: Tensor) -> Tensor:
    Q, K, V = (x @ one for one in W[:3])
    heads = []
    for begin in range(0, 16, 2):
        q, k, v = (one[..., begin : begin + 2] for one in (Q, K, V))
        heads.append((q @ k.mT / math.sqrt(2)).masked_fill(~mask, -math.inf).softmax(dim=-1) @ v)
    return torch.cat(heads, dim=-1) @ W[3]

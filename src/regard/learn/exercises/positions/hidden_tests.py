"""The hidden tests of the exercise positions."""

import math

import torch

from regard.learn.expecting import Program, expect


def test_shape(own: Program) -> None:
    """There is one row per position and one column per dimension."""
    expect(list(own.positional_encoding(5, 8).shape), [5, 8], given="the shape of positional_encoding(5, 8)")


def test_first_position(own: Program) -> None:
    """Position 0 is sin 0 and cos 0 in turn: 0, 1, 0, 1."""
    given = "positional_encoding(1, 4)"
    expect(own.positional_encoding(1, 4), torch.tensor([[0.0, 1.0, 0.0, 1.0]]), given=given)


def test_first_pair(own: Program) -> None:
    """The first two dimensions are sin(pos) and cos(pos)."""
    expected = torch.tensor([[math.sin(pos), math.cos(pos)] for pos in range(4)])
    expect(own.positional_encoding(4, 6)[:, :2], expected, given="positional_encoding(4, 6)[:, :2]")


def test_later_pairs(own: Program) -> None:
    """Dimensions 2i and 2i + 1 turn 10000^(2i/d_model) times as slowly: with d_model = 4, the second pair 100 times."""
    expected = torch.tensor([[math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)]])
    expect(own.positional_encoding(4, 4)[3:], expected, given="positional_encoding(4, 4)[3]")


def test_exponent(own: Program) -> None:
    """The exponent is 2i/d_model, with i counted from 0: the last pair of d_model = 8 has 10000^(6/8) = 1000."""
    expected = torch.tensor([math.sin(0.05), math.cos(0.05)])
    expect(own.positional_encoding(51, 8)[50, 6:], expected, given="positional_encoding(51, 8)[50, 6:]")


def test_far_positions(own: Program) -> None:
    """Far positions are as exact as near ones: sin(4000) and cos(4000)."""
    expected = torch.tensor([math.sin(4000), math.cos(4000)])
    expect(own.positional_encoding(4001, 16)[4000, :2], expected, given="positional_encoding(4001, 16)[4000, :2]")
